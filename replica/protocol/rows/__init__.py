"""Table maps and rows events: the columns of a table, their types, and the bytes of their values."""
