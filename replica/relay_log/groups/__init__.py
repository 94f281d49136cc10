"""Event groups of a relay log: by time, by place on the primary, by GTID, and where numbers went back."""
