"""Places of offsets in a relay log, and the partitions of the bytes between two offsets."""
