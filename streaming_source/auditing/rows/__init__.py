"""Rows of a table and of its copy: made comparable, hashed in buckets, and listed if they differ."""
