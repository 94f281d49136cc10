"""State of a mirror: its control table, its checkpoint, its status, and its metrics."""
