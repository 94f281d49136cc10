"""Definitions of a query's tables along its stream, and the statements that end a batch."""
