"""The columns and rows that a target has of its table: rules, and the expressions that follow them.

The mirror writes targets by them, and the audit compares by them.
"""
