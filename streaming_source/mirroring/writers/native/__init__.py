"""Writes of tasks to Delta tables by delta-rs, without Spark's MERGE and without rows in the JVM."""
