"""Events and JSON of MySQL alone: its GTIDs, compressed transactions, binary JSON and partial updates of it."""
