"""Helpers for the queries over our rows; only PySpark is needed."""
