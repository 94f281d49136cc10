"""Offsets in Spark's checkpoint, starting positions, and purged positions."""
