"""Statements of the binlog: their kinds, and the tables that they name or change."""
