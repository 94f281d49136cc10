"""Snapshot rows in the batches of a stream: their keys, ranges and reader."""
