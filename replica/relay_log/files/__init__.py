"""Relay files: heads, index files, order and removal, and the state of a reader of their bytes."""
