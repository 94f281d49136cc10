"""The offsets in Spark's checkpoint, what users may give in their place, and what to do where one points at nothing."""
