"""The state of a mirror: its control table, its checkpoint, status and metrics."""
