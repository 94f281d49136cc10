"""The start of a dump: where it begins, and whether the server's binlog is still the one that was read."""
