"""Checks of this machine: its relay directory, disk, Spark."""
