"""What a user may set: one table of options, and the parsers that refuse what they cannot mean."""
