"""Modes of a target: what a target holds of its table, and how changes are applied. Each mode has one file.

`mode.py` has the interface `Mode`, `choose.py` finds a mode by name, and `mode.py` lists the columns that each mode
adds to a target.
"""
