"""Definitions of tables along a stream, and the statements that end a batch."""
