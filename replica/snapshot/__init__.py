"""Lock-free snapshot: read tables in chunks, and reconcile each chunk with the relay log, so that the rows of a batch
hold at its GTID position.
"""
