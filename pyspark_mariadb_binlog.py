"""Spark finds `format("mariadb-binlog")` through this module: it looks for `DefaultSource` in every `pyspark_*` module.

One broken `pyspark_*` module switches discovery off for all sources, so this file imports nothing heavy and never
raises.
"""

try:
    from streaming_source.source import MariaDbBinlogSource as DefaultSource
except ImportError:  # pyspark is missing or older than the Python data source API: there is nothing to discover
    DefaultSource = None  # type: ignore[assignment,misc]
