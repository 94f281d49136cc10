"""Rows as text: the row kernel, its templates, and the texts of a range."""
