"""What Spark's checkpoint holds, what users may give in its place, and what to do where it points at nothing."""
