"""Delta tables: the session's Delta and for which Spark it is, and folders that delta-rs can reach, without Spark.

`folder_of` and `known_folder` take a table as SQL names it. They return a local path or a URL of S3, with which
`sinks/storage.py` opens the table, and None for a table on other storage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from replica.errors import ConfigError
from streaming_source.sinks.queries import SPARK_ERRORS
from streaming_source.sinks.storage import SCHEMES, known_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

DELTA: Final = "delta"
_OWN_CATALOG: Final = "spark_catalog"


def path_of(table: str) -> str | None:
    """Return the path of a table that is named by its path; None for a table in a catalog."""
    first, _, path = table.partition(".")
    return path.strip("`") if first.strip("`") == DELTA and "/" in path else None


def folder_of(spark: SparkSession, table: str, storage: Mapping[str, str] | None = None) -> str | None:
    """Return the folder of a table.

    For a table in another catalog, Spark needs a second for DESCRIBE DETAIL, in which it reads the log.

    Args:
        spark: the session.
        table: the table's name in SQL.
        storage: `storageOptions` of a mirror, which replace the known options of its bucket.
    """
    known = _known_location(spark, table)
    return _reachable(
        spark, known or str(spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0][0]), storage
    )


def known_folder(spark: SparkSession, table: str, storage: Mapping[str, str] | None = None) -> str | None:
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
    return None if location is None else _reachable(spark, location, storage)


def planned_location(spark: SparkSession, table: str) -> str | None:
    """Return where a table that does not exist will be created; None if another catalog chooses the place."""
    return _location(spark, table, lambda catalog, named: catalog.defaultTablePath(named))


def _known_location(spark: SparkSession, table: str) -> str | None:
    """Return the location of a Delta table if its name or Spark's own catalog has it; None for other catalogs."""
    return _location(spark, table, lambda catalog, named: catalog.getTableMetadata(named).location())


def _location(spark: SparkSession, table: str, of_catalog: Callable[[Any, Any], object]) -> str | None:
    """Return the path in a table's name, or the location that Spark's own catalog has for it; else None."""
    path = path_of(table)
    if path is not None:
        return path
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001  (Python has no API for it)
    named = state.sqlParser().parseTableIdentifier(table)
    if named.catalog().isEmpty() or named.catalog().get() == _OWN_CATALOG:
        return str(of_catalog(state.catalog(), named))
    return None


def local_path(location: str) -> str | None:
    """Return the local path of a location in Spark's form; None for other storage."""
    place = urlsplit(location)
    return unquote(place.path) if place.scheme in ("", "file") else None


def _reachable(spark: SparkSession, location: str, storage: Mapping[str, str] | None) -> str | None:
    """Return the local path or the URL in S3 of a location in Spark's form; None for other storage."""
    place = urlsplit(location)
    if place.scheme in SCHEMES:
        return known_storage(spark, location, storage)
    return unquote(place.path) if place.scheme in ("", "file") else None


# A Delta that was built for another minor version of Spark would end in NoSuchMethodError in the middle of the first
# batch. The name of its jar has the Spark version that it was built for. A Delta with another file name, as platforms
# have, is accepted, and so is a session of Spark Connect, whose server cannot be asked.


_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"
_JAR: Final = re.compile(r"delta-spark_(?:(\d+\.\d+)_)?2\.\d+-((4\.\d+|\d+)\.[\w.]*\w)[\w-]*\.jar")
"""File name of Delta's jar. From 4.1 on, the name has the Spark version. Delta 4.0 was for Spark 4.0, and Delta 3 for
Spark 3.
"""


def has_delta(spark: SparkSession) -> bool:
    """Return True if Spark itself can read and write Delta tables. A server of Spark Connect is taken to have Delta."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return True
    application = str(spark.sparkContext.applicationId)
    if application not in _known:
        _known[application] = _jar(jvm) is not None
    return _known[application]


def no_delta_error(what: str) -> ConfigError:
    """Make the error for something that needs Delta in the session.

    Args:
        what: what needs Delta, as the beginning of a sentence.
    """
    return ConfigError(
        f"{what} needs Delta's classes in Spark, and this session has no Delta: the class {_CLASS} is missing.",
        hint="Start it with Delta's package and settings (docs/recipes.md), on a Spark for which Delta is built "
        "(docs/versions.md).",
    )


_known: dict[str, bool] = {}
"""Whether Spark has Delta, by the id of the Spark application."""


def check_delta(spark: SparkSession) -> None:
    """Refuse a session whose Delta is built for another Spark. A session without Delta is accepted.

    Raises:
        ConfigError: Delta is built for another Spark.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    jar = _jar(jvm)
    if jar is None:
        return
    wanted = ".".join(spark.version.split(".")[:2])
    built_for, release = _versions_in(jar)
    if built_for not in (None, wanted):
        raise ConfigError(
            f"the Delta of this session, {release}, is built for Spark {built_for}, and this is Spark {spark.version}: "
            "its first write would end in NoSuchMethodError.",
            hint=f"Use Delta's package for {wanted} (delta-spark_{wanted}_2.13), or the Spark that it is built for; "
            "docs/versions.md lists the tested versions.",
        )


def _versions_in(jar: str) -> tuple[str | None, str]:
    """Return the Spark version of a jar of Delta, and its release; None if the jar's name lacks the version."""
    found = _JAR.search(jar)
    return (None, jar) if found is None else (found[1] or found[3], found[2])


def _jar(jvm: Any) -> str | None:
    """Return the location of Delta's classes; None without Delta, '' if Java does not report it."""
    from py4j.protocol import Py4JJavaError

    try:
        # With Spark's class loader: spark.jars are on the class path of the session, not on that of the JVM.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        source = jvm.java.lang.Class.forName(_CLASS, False, loader).getProtectionDomain().getCodeSource()
    except Py4JJavaError:  # ClassNotFoundException
        return None
    return "" if source is None or source.getLocation() is None else str(source.getLocation().toString())
