"""Relay files: their heads, sidecars, order and removal, and the state that reading them leaves."""
