"""The formats that targets are kept in: what a mirror needs of one, and a file a format.

`target_format.py` says what each has to do, `choose.py` finds one by its name.
"""
