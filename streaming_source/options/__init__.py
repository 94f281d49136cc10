"""The options that a user may set: one table of them, and the parsers that refuse what they cannot mean."""
