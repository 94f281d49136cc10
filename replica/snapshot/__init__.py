"""Reads tables as they stood at a GTID position: snapshot transactions, and the relay log replayed over them."""
