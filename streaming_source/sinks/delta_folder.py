"""The folder of a Delta table on a local disk, where it can be read and written without Spark.

`folder_of` and `known_folder` take a table as SQL names it. They return None for a table on other storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from streaming_source.sinks.short_errors import SPARK_ERRORS
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

DELTA: Final = "delta"
_OWN_CATALOG: Final = "spark_catalog"


def path_of(table: str) -> str | None:
    """Return the path of a table that is named by its path; None for a table in a catalog."""
    first, _, path = table.partition(".")
    return path.strip("`") if first == identifier(DELTA) and "/" in path else None


def folder_of(spark: SparkSession, table: str) -> str | None:
    """Return the folder of a table. For a table in another catalog, this takes DESCRIBE DETAIL, a second in which Spark
    reads the log.
    """
    known = _known_location(spark, table)
    return _local(known or str(spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0][0]))


def known_folder(spark: SparkSession, table: str) -> str | None:
    """Return the folder of a table if its name or Spark's own catalog has it. The folder may be without a table.

    With Spark Connect, a path is on the server's disk, so the result is None.
    """
    from pyspark.sql import is_remote

    if is_remote():
        return None
    try:
        location = _known_location(spark, table)
    except SPARK_ERRORS:
        return None
    return None if location is None else _local(location)


def planned_location(spark: SparkSession, table: str) -> str | None:
    """Return where a table that does not exist will be created; None if another catalog chooses the place."""
    return _location(spark, table, lambda catalog, named: catalog.defaultTablePath(named))


def _known_location(spark: SparkSession, table: str) -> str | None:
    """Return the location of a Delta table if its name or Spark's own catalog has it; None for other catalogs."""
    return _location(spark, table, lambda catalog, named: catalog.getTableMetadata(named).location())


def _location(spark: SparkSession, table: str, of_catalog: Callable[[Any, Any], object]) -> str | None:
    """Return the path that a table is named by, or what Spark's own catalog says of it; None for other catalogs."""
    path = path_of(table)
    if path is not None:
        return path
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001  (Python has no API for it)
    named = state.sqlParser().parseTableIdentifier(table)
    if named.catalog().isEmpty() or named.catalog().get() == _OWN_CATALOG:
        return str(of_catalog(state.catalog(), named))
    return None


def _local(location: str) -> str | None:
    """Return the local path of a location in Spark's form; None for other storage."""
    place = urlsplit(location)
    return unquote(place.path) if place.scheme in ("", "file") else None
