"""Queries over a relay log that a daemon writes and the query only reads."""
