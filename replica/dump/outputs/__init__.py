"""The outputs of the dump: for people, SQL, JSON of rows, JSON of events, counts."""
