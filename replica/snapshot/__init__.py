"""Lock-free snapshot: read tables in chunks and reconcile each chunk with the relay log, so that it holds at a GTID
position.
"""
