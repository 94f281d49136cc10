"""A micro-batch as its outline, and the rows of one table in it."""
