"""Merge changes into the rows of a target: net changes by key, images that lack columns, equal rows by number."""
