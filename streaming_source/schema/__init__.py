"""The columns of the rows, and what the tables look like at each place of the stream."""
