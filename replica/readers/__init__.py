"""Readers of what a replica received: binlog files, relay logs and primaries, as events, rows and Arrow batches."""
