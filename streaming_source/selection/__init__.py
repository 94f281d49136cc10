"""Which tables, columns and rows a query asks for."""
