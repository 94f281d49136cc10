"""A relay log that a daemon writes, behind a query that only reads it."""
