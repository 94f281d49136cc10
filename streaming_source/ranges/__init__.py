"""The place of an offset in a relay log, and how the bytes between two offsets become partitions."""
