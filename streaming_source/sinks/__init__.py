"""Helpers for sinks of this source: MERGE by key, net changes, and the progress of a query. They need only PySpark."""
