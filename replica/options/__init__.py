"""Options of every program: their values, places, files, secrets, and the one typed table of a replica."""
