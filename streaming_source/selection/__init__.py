"""The tables, columns and rows that a query selects."""
