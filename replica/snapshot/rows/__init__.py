"""Rows of a SELECT, encoded as row images of the binlog, with the key at which chunks are cut."""
