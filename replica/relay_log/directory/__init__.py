"""Relay directory: its access rights, its identity, its writer's lock, its readers, and its published end."""
