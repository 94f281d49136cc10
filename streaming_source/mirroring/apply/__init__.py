"""Application of a micro-batch to its targets: the work on each table, its errors, and settings for Spark's MERGE."""
