"""Running replica: its connection to the primary, and its use inside another program."""
