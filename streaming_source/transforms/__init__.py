"""Rules that transform a table for its target: the columns, the rows, and the expressions for them.

The mirror writes targets by these rules, and the audit compares targets by them.
"""
