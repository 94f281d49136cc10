"""Tables of the server at the position of an audit, and the copies that a call names.

`read_source` returns a table's rows as a DataFrame that gives every action the same rows. `position_now` returns the
end of the binlog, for audits without a position. Options that the audit sets itself are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ConfigError
from replica.handshake.start.start import server_position
from streaming_source.attached.folder import attached_directory
from streaming_source.driver.own_session import in_session
from streaming_source.options.source_options import SourceOptions
from streaming_source.sinks.delta_folders import read_in_one_task
from streaming_source.sinks.iceberg.catalogs import (
    is_iceberg,
    load_table,
    name_in,
    register,
    registered,
    table_exists,
)
from streaming_source.sinks.iceberg.snapshots import newest_snapshot, snapshot_rows
from streaming_source.sinks.queries import first_line, unlogged_calls
from streaming_source.source.batch.folders import passing_base
from streaming_source.source.batch.tables import POSITION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from replica.rows.types.types import ValuePolicy

_DECIDED: Final = ("table", "tables", "content", "endingposition", "path", "columns", "excludetables", "rowshape")
"""Options that an audit sets itself, or that would exclude rows or columns."""
_FOLDER: Final = "relaydir"


def source_options(given: Mapping[str, object]) -> dict[str, str]:
    """Return the options of the source as Spark takes them.

    Raises:
        ConfigError: one of them is decided by the audit.
    """
    for name in given:
        if name.lower() in _DECIDED:
            raise ConfigError(
                f"option {name} is not allowed in an audit, which compares whole tables at one position.",
                hint="Name the tables in tables, the position in at, and columns to leave out in ignore.",
            )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def value_policy(options: Mapping[str, str], table: str) -> ValuePolicy:
    """Return how values are converted that the types cannot hold."""
    return _parsed(options, table).policy


def position_now(options: Mapping[str, str], table: str) -> str:
    """Return the position at the end of the server's binlog."""
    return str(asyncio.run(server_position(_parsed(options, table).connection)))


def read_source(spark: SparkSession, options: Mapping[str, str], table: str, position: str) -> DataFrame:
    """Return a table's rows at the position; '' is before the first transaction of the binlog."""
    with unlogged_calls():  # the options have the password
        reader = spark.read.format("mariadb-binlog").options(**options)
    return reader.options(content="tables", table=table, endingPosition=position or "earliest").load().drop(POSITION)


@contextlib.contextmanager
def passing_reads(options: Mapping[str, str], table: str) -> Iterator[dict[str, str]]:
    """Give options with a relayDir whose content is removed at the end of the block.

    Otherwise the rows of each audited table would stay on disk for as long as the driver lives.
    """
    from pyspark.sql import is_remote

    if is_remote():  # the folder is on the server of Spark Connect
        yield dict(options)
        return
    parsed = _parsed(options, table)
    with passing_base(None if attached_directory(parsed) else parsed.relay_dir) as folder:
        yield {name: value for name, value in options.items() if name.lower() != _FOLDER} | {"relayDir": str(folder)}


def _parsed(options: Mapping[str, str], table: str) -> SourceOptions:
    return SourceOptions.parse({name.lower(): value for name, value in options.items()} | {"table": table})


# `read_target` returns the rows of one version, which does not change while they are read. Other values are errors,
# and so is a version of a copy that has no versions.


_VERSIONED: Final = re.compile(r"(.+)@v(\d+)", re.DOTALL)
"""A name or a path with a version, as Delta writes it."""


class ReadTarget(NamedTuple):
    """Copy that can be read.

    Attributes:
        version: the version of `rows` if the copy is a Delta table, the id of the snapshot if it is an Iceberg table;
            else None.
    """

    name: str
    version: int | None
    rows: DataFrame


def read_target(spark: SparkSession, table: str, given: Any) -> ReadTarget:
    """Return the rows of a copy, as of its newest version unless the name has one.

    Raises:
        ConfigError: `given` is not a name, a path or a DataFrame, or there is no such table.
        StorageError: the catalog of an Iceberg table cannot be reached.
    """
    from pyspark.errors import AnalysisException

    if hasattr(given, "schema") and hasattr(given, "select"):
        return ReadTarget("DataFrame", None, in_session(spark, given))
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(
            f"the copy of {table} is neither a table's name, nor a path, nor a DataFrame.",
            hint='Give "lake.orders", "lake.orders@v12" for a version, "/lake/orders", or a DataFrame.',
        )
    named = _VERSIONED.fullmatch(given.strip())
    name = given.strip() if named is None else named[1]
    if is_iceberg(name):
        opened = load_table(name)
        snapshot = newest_snapshot(opened) if named is None else int(named[2])
        return ReadTarget(name, snapshot, snapshot_rows(spark, opened, name, snapshot))
    try:
        wanted = None if named is None else int(named[2])
        if (read := read_in_one_task(spark, as_table(name), wanted)) is not None:
            return ReadTarget(name, *read)
        version = _newest(spark, name) if wanted is None else wanted
        reader = spark.read if version is None else spark.read.option("versionAsOf", version)
        rows = reader.format("delta").load(name) if _is_path(name) else reader.table(name)
    except AnalysisException as error:
        raise ConfigError(
            f"the copy of {table}, {name}, cannot be read: {first_line(error)}",
            hint="Name a table of the catalog, the folder of a Delta table, or give a DataFrame.",
        ) from error
    return ReadTarget(name, version, rows)


def in_catalog(given: Any, catalog: str) -> Any:
    """Return a copy with the full name of its table in an Iceberg catalog; paths and DataFrames as they are.

    Args:
        given: the copy, as in `audit`.
        catalog: the name of a registered catalog.
    """
    if not isinstance(given, str) or _is_path(given) or is_iceberg(given):
        return given
    named = _VERSIONED.fullmatch(given.strip())
    return name_in(catalog, given.strip()) if named is None else f"{name_in(catalog, named[1])}@v{named[2]}"


def control_named(spark: SparkSession, given: str, catalog: str | Mapping[str, object] | None) -> str:
    """Return the SQL name of a control table.

    Args:
        spark: a session that may see it.
        given: its name or folder.
        catalog: the Iceberg catalog that has it. Without it, the session is searched for the control table, and then
            the catalogs that this process knows.

    Raises:
        ConfigError: `catalog` is invalid, or `given` is a folder.
        StorageError: a catalog cannot be reached.
    """
    if catalog is not None:
        if _is_path(given):
            raise ConfigError(f"icebergCatalog is for tables, but {given} is a folder.", hint="Remove one of them.")
        return str(in_catalog(given, register(catalog)))
    name = as_table(given)
    if is_iceberg(name) or _is_path(given) or not registered() or _is_in(spark, name):
        return name
    return next((full for known in registered() if table_exists(full := name_in(known, given))), name)


def _is_in(spark: SparkSession, name: str) -> bool:
    from pyspark.errors import PySparkException

    try:
        return bool(spark.catalog.tableExists(name))
    except PySparkException:
        return False


def as_table(name: str) -> str:
    """Return the SQL name of a table, or of the Delta table in a folder."""
    return f"delta.`{name}`" if _is_path(name) else name


def _is_path(name: str) -> bool:
    return "/" in name and "`" not in name


def _newest(spark: SparkSession, name: str) -> int | None:
    """Return the newest version of a Delta table; None for other formats, which have no versions."""
    from pyspark.errors import AnalysisException

    try:
        (last,) = spark.sql(f"DESCRIBE HISTORY {as_table(name)} LIMIT 1").select("version").collect()
    except AnalysisException:
        if _is_path(name):
            raise
        return None
    return int(last[0])
