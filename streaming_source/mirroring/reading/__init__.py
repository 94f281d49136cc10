"""Snapshots and re-snapshots of tables: source tables, rules at the start, and requests for a re-snapshot."""
