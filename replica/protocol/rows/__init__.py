"""Table maps and rows events: which columns, of which type, with which bytes."""
