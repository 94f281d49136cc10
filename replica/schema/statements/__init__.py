"""Statements of the binlog: what they are, and which tables they name or change."""
