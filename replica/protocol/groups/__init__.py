"""Event groups: which events make one transaction, and what identifies it on every server."""
