"""Judge whether tables can be read, and how: the server's catalog, keys, foreign keys, and a verdict for each table."""
