"""Offsets in Spark's checkpoint, the starting positions that users give, and the handling of positions that were
purged.
"""
