"""Outlines of micro-batches: what a batch has of which table, and where its rows are read, instead of the rows."""
