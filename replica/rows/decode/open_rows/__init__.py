"""Rows of tables whose snapshot is still running."""
