"""Merge of changes into the rows of a target: net changes by key, images that lack columns, counts of equal rows."""
