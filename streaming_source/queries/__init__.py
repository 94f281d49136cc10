"""Helpers for queries over the rows of this source. They need PySpark and nothing else."""
