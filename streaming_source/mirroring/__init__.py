"""The mirror: the tables of a server as tables of the lakehouse, made and kept equal by one streaming query.

`call.py` has the function that users call, `sink.py` the steps of a micro-batch. The rooms are in the order of a batch:
`batch` (what it has of which table), `reading` (targets that begin), `statements`, `apply` (rows into a target),
`writers`, `modes` (what a target holds), `foreign_keys`, `control` (how far each table is). docs/mirror.md describes
all of it.
"""
