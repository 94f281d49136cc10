"""Rows of a SELECT as row images of the binlog, with the key that each chunk is cut by."""
