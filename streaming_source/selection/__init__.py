"""Selection of tables, columns and rows by a query."""
