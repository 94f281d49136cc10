"""Chunks of tables: what is read next, by which thread, and what a batch takes."""
