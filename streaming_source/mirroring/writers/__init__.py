"""Writers of targets: Delta tables by Spark, Delta tables by delta-rs (`native`), and folders of Parquet files.

`target_format.py` has the interface of a format, `choose.py` finds a format by name.
"""
