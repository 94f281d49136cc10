"""The place of a Delta table on a local disk, where it can be read and written without Spark.

In: a session, and a table as SQL names it. Out: a folder; None where the table lies on other storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from streaming_source.queries.short_errors import SPARK_ERRORS
from streaming_source.queries.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA: Final = "delta"
_OWN_CATALOG: Final = "spark_catalog"


def path_of(table: str) -> str | None:
    """Return where a table lies that its path names; None if a catalog has it."""
    first, _, path = table.partition(".")
    return path.strip("`") if first == identifier(DELTA) and "/" in path else None


def folder_of(spark: SparkSession, table: str) -> str | None:
    """Return the folder of a table. Of a table in another catalog only DESCRIBE DETAIL tells it, after a second in
    which Spark reads the log.
    """
    known = _known_location(spark, table)
    return _local(known or str(spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0][0]))


def known_folder(spark: SparkSession, table: str) -> str | None:
    """Return the folder of a table, if its name or Spark's own catalog says it. There may be no table there.

    With Spark Connect, a path is one of the server's disk, so it is None.
    """
    from pyspark.sql import is_remote

    if is_remote():
        return None
    try:
        location = _known_location(spark, table)
    except SPARK_ERRORS:
        return None
    return None if location is None else _local(location)


def _known_location(spark: SparkSession, table: str) -> str | None:
    """Return where a Delta table lies, if its name or Spark's own catalog says so; None for other catalogs."""
    path = path_of(table)
    if path is not None:
        return path
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001  (Python has no door to the catalog's word)
    named = state.sqlParser().parseTableIdentifier(table)
    if named.catalog().isEmpty() or named.catalog().get() == _OWN_CATALOG:
        return str(state.catalog().getTableMetadata(named).location())
    return None


def _local(location: str) -> str | None:
    """Return the path of a folder on a disk, as Spark names its place; None for other storage."""
    place = urlsplit(location)
    return unquote(place.path) if place.scheme in ("", "file") else None
