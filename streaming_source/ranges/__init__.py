"""Where an offset lies in a relay log, and how the bytes between two of them become partitions."""
