"""The mirror: one streaming query that creates target tables and keeps them equal to the tables of a server.

`call.py` has `mirror()`, the function that users call. `sink.py` has the steps of a micro-batch. docs/mirror.md is the
user's page. The packages follow the order of the steps:

- `batch`: which tables a micro-batch changes.
- `reading`: snapshots of tables.
- `statements`: DDL.
- `apply`: changes into a target.
- `writers` and `modes`: formats of targets, and what a target holds.
- `foreign_keys`: cascades.
- `control`: the state of each table.
"""
