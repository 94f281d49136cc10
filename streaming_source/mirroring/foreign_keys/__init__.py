"""Apply cascades of foreign keys to the targets: the server changes rows of other tables, which no binlog records.

The main class is `Cascades` in `cascades.py`.
"""
