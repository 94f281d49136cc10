"""Options of the source: one table of them, and the parsers that refuse invalid values and combinations."""
