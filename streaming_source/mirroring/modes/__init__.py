"""The modes of a target: what it holds of its table, and how a batch gets into it, a file a mode.

`kinds.py` says which columns each adds, `mode.py` what each has to do, `choose.py` finds one by its
name.
"""
