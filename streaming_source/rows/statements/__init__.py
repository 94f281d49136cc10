"""Statements as rows, and what statements changed."""
