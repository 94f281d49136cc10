"""Options of every program: value parsers, positions, option files, secrets, and the typed table of options."""
