"""Statements of the binlog: what each asks of a target, and which are proved to keep every value."""
