"""Batch reads of a server's binlog or of a daemon's relay log."""
