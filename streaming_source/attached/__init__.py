"""Queries over a relay log that a daemon writes. The query only reads the log."""
