"""The tables, columns and rows that a query asks for."""
