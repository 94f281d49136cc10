"""Definitions of tables: the result of CREATE and ALTER."""
