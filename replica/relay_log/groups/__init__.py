"""Event groups of a relay log: lookup by time, by primary place and by GTID, and sequence numbers that went back."""
