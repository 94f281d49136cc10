"""Cascades of foreign keys: changes of child rows on the server that no binlog records, applied to the targets.

The main class is `Cascades` in `cascades.py`.
"""
