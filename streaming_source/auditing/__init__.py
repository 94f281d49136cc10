"""The audit: whether tables of the lakehouse hold what a server's tables held at one GTID position.

`call.py` has the function that users call, `canonical.py` what rows are compared by, `buckets.py` the comparison,
`differences.py` the rows that differ. docs/audit.md describes all of it.
"""
