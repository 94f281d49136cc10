"""Batch reads of binlog files, by `path`."""
