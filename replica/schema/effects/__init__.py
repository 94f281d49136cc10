"""Effects of statements on tables, from one statement to the next."""
