"""Checks of one server, and of several servers together."""
