"""Follow what foreign keys cascade: the server changes rows of other tables, which no binlog has.

Begin with `cascades.py`.
"""
