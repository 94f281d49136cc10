"""Columns of the rows, and the table definitions at each place of the stream."""
