"""Outputs of the dump: text for people, SQL, JSON of rows, JSON of events, counts."""
