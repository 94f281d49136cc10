"""Start of a dump: its position or place, and checks that the server's binlog is still the same."""
