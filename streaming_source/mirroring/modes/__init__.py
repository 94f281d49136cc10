"""Modes of a target: what a target holds of its table, and how changes are applied.

Each mode has one file. `mode.py` has the interface `Mode` and the columns that each mode adds to a target. `choose.py`
finds a mode by name.
"""
