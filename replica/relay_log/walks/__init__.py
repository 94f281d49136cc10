"""Scans of a part of the relay log: its statements, its XA transactions, its last event."""
