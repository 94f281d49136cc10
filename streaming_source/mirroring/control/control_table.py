"""Control table of a mirror: one row for each table, with the position up to which its target is complete.

In and out: `ControlRow`s. The mirror writes all rows at the end of each micro-batch, as one commit. So one version of
the table has all tables at one position. Nothing else writes the table. Functions for users name it by the template of
its targets, or by its own name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.apply.faults import full_disk_told
from streaming_source.mirroring.control.control_row import COLUMNS, ControlRow, of_columns, to_columns
from streaming_source.mirroring.names import TargetNames
from streaming_source.mirroring.writers.choose import FORMATS, control_store
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import columns_there, replace_rows, rows_there
from streaming_source.mirroring.writers.versions import METADATA
from streaming_source.schema.arrow import arrow_schema
from streaming_source.schema.row_schema import spark_type
from streaming_source.sinks.delta_folder import known_folder
from streaming_source.transforms.target_columns import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import SparkSession

CHECKPOINT: Final = "mariadb.checkpoint"
"""Property of the control table that names its checkpoint."""
_log = logging.getLogger(__name__)
_HINT = "Give the value with which the mirror was started."


def mirrored_tables(spark: SparkSession, control: str) -> list[ControlRow]:
    """Return the rows of one version of a control table; empty if there is none yet."""
    found = _rows_without_spark(spark, control)
    if found is not None:
        return found
    store = control_store(spark, control)
    if not store.exists():
        return []
    table = store.rows()
    there = [name for name in ControlRow._fields if name in table.columns]  # a table of an older version lacks columns
    return _sorted(row.asDict(recursive=True) for row in table.select(*there).collect())


def _rows_without_spark(spark: SparkSession, control: str) -> list[ControlRow] | None:
    """Return the rows as delta-rs reads them, in a hundredth of Spark's time; None if it cannot."""
    folder, names = _columns_without_spark(spark, control)
    there = [name for name in ControlRow._fields if name in names]
    if not there:
        return None
    try:
        found = rows_there(folder, there)
    except NativeWriteError as refused:
        _log.debug("Spark reads %s instead of delta-rs: %s", control, refused)
        return None
    return _sorted(dict(zip(there, row, strict=True)) for row in found)


def _columns_without_spark(spark: SparkSession, control: str) -> tuple[str, Collection[str]]:
    """Return the folder and the columns of a control table, as delta-rs reads them; no columns if it cannot."""
    folder = known_folder(spark, control)
    try:
        return ("", ()) if folder is None else (folder, columns_there(folder))
    except (NativeWriteError, ImportError) as refused:  # deltalake is optional
        _log.debug("Spark checks %s instead of delta-rs: %s", control, refused)
        return "", ()


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[ControlRow]:
    return sorted(map(of_columns, rows), key=lambda row: row.name)


def make_control(
    spark: SparkSession, control: str, namespace: str | None, checkpoint: str, properties: Mapping[str, str]
) -> None:
    """Create an empty control table and its namespace, if they do not exist."""
    if namespace is not None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    control_store(spark, control).make(_columns(), {CHECKPOINT: checkpoint, **properties})


def complete_control(spark: SparkSession, control: str) -> None:
    """Add the columns that a control table of an older version lacks."""
    _, names = _columns_without_spark(spark, control)
    if {name for name, _, _ in COLUMNS} <= set(names):
        return
    store = control_store(spark, control)
    if store.exists():
        there = store.rows().columns
        lacking = [column for column in _columns() if column.name not in there]
        if lacking:
            store.add_columns(lacking)


def write_control(spark: SparkSession, control: str, rows: Iterable[ControlRow], folder: str | None = None) -> None:
    """Replace all rows of the control table in one commit; `folder`: its folder, if delta-rs may write it."""
    import pyarrow as pa  # Arrow rows are part of the plan; for a list, Spark starts Python
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(name, spark_type(kind)) for name, kind, _ in COLUMNS])
    listed = [to_columns(row) for row in rows]
    values = {name: [row[name] for row in listed] for name, _, _ in COLUMNS}
    if folder is not None:
        try:
            replace_rows(folder, values, str(spark.conf.get(METADATA, "")))
        except NativeWriteError as refused:
            _log.debug("Spark writes %s instead of delta-rs: %s", control, refused)
        else:
            return
    table = pa.table(values, schema=arrow_schema(schema))
    with full_disk_told(f"the control table {control}"):
        control_store(spark, control).replace(spark.createDataFrame(table, schema).coalesce(1))


def is_as_written(folder: str | None, rows: Iterable[ControlRow]) -> bool:
    """Return True if the control table in a folder has exactly these rows; False also if only Spark can decide it.

    Spark needs a second to read the table, and a micro-batch would have to wait for it.
    """
    names = ("mirror", "source_database", "source_table", "batch", "position")
    try:
        there = None if folder is None else set(rows_there(folder, names))
    except NativeWriteError as refused:
        _log.debug("Spark reads %s instead of delta-rs: %s", folder, refused)
        return False
    return there == {tuple(getattr(row, name) for name in names) for row in rows}


def _columns() -> list[TargetColumn]:
    return [TargetColumn(name, kind, nullable=True, comment=about) for name, kind, about in COLUMNS]


def control_of(spark: SparkSession, call: str, into: str | None, control: str | None) -> tuple[str, list[ControlRow]]:
    """Return the name of a control table, and its rows.

    Raises:
        ConfigError: neither `into` nor `control` is given, or there is no such control table.
    """
    if into is None and control is None:
        raise ConfigError(f"{call} needs into or control.", hint=_HINT)
    names = [TargetNames("{table}" if into is None else into, control, kind).control for kind in FORMATS]
    spark = own_session(spark)
    name = next((each for each in names if control_store(spark, each).exists()), None)
    if name is None:
        raise ConfigError(f"there is no control table {names[0]}.", hint=_HINT)
    return name, mirrored_tables(spark, name)
