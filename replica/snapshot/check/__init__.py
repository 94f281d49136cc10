"""Prerequisite check of a snapshot: read the server's catalog, keys and foreign keys, and give a verdict on each
table.
"""
