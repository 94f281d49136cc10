"""The writers of targets: Delta tables by Spark and, in `native`, by delta-rs; folders of Parquet files.

`target_format.py` says what a format has to do, `choose.py` finds one by its name.
"""
