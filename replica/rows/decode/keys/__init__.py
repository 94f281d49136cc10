"""Keys of rows, and the index of rows by key."""
