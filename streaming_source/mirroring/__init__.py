"""The mirror: the tables of a server as tables of the lakehouse, made and kept equal by one streaming query.

`call.py` has the function that users call, `sink.py` what happens to a micro-batch, `control.py` the table that tells
how far each table is. docs/mirror.md describes all of it.
"""
