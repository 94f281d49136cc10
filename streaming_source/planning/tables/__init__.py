"""Rows of the tables themselves in the batches of a stream: their keys, ranges and reader."""
