"""Audit: whether tables of the lakehouse have the rows that a server's tables had at one GTID position.

`call.py` has the public function and `comparison.py` the steps for one table. `rows` makes rows comparable and finds
the rows that differ. `mirror` connects audits with a mirror's control table. docs/audit.md describes the audit.
"""
