"""Repairs that audits request. The mirror does them between two micro-batches.

In: the requests in `<control>_repairs`, the rows of the control table. Out: targets whose differing rows are replaced
by the server's rows at the target's own position, and a row of `<control>_audits` for each request. The rows of a
request are older than the target. Keys that the binlog has changed since the request are skipped, because the target
already has these changes. Refused, with the reason in the row of `<control>_audits`: tables with a later statement, and
targets that are not current or have other columns.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.errors import AnalysisException

from replica.errors import ReplicaError, SchemaError
from replica.schema.patterns import table_text
from streaming_source.auditing.mirror.records import COLUMNS as RECORD
from streaming_source.auditing.mirror.records import (
    NOT_REPAIRED,
    REMOVED,
    REPAIRED,
    REPAIRS_SUFFIX,
    ROW,
    append_beside,
    beside,
    make_records,
)
from streaming_source.auditing.mirror.records import SUFFIX as RECORDS
from streaming_source.mirroring.apply.faults import raise_fault
from streaming_source.mirroring.control.control_table import CURRENT
from streaming_source.mirroring.settings import batch_options
from streaming_source.mirroring.writers.target_format import METADATA, UNNUMBERED, Commit
from streaming_source.schema.target_modes import CURRENT as CURRENT_MODE
from streaming_source.sinks.delta import has_delta
from streaming_source.sinks.iceberg.catalogs import ICEBERG
from streaming_source.sinks.queries import SPARK_ERRORS, first_line, message_of, unlogged_calls
from streaming_source.sinks.sql_text import braced, identifier, text_value
from streaming_source.sinks.upserts import sql_name
from streaming_source.transforms.transformed_images import image_type, target_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings

POLL_S: Final = 10.0
"""Seconds between two checks for requests. A check takes some hundredths of a second."""
_log = logging.getLogger(__name__)


class Repaired(NamedTuple):
    """Outcome of a request.

    Attributes:
        keys: the requested keys.
        changed: the keys that were skipped because of later changes.
    """

    keys: int
    changed: int


class Repairs:
    """Repairs of a mirror. `serve` may only be called between two micro-batches."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._checked_s = -POLL_S

    def serve(
        self, spark: SparkSession, rows: Mapping[TableName, ControlRow], before: Callable[[TableName, str], None]
    ) -> None:
        """Do the requested repairs, unless the last check was less than POLL_S seconds ago.

        Args:
            spark: the session of the query.
            rows: the rows of the control table.
            before: called before a repair, with the table and the position of its audit.
        """
        if time.monotonic() - self._checked_s < POLL_S:
            return
        self._checked_s = time.monotonic()
        for request in self._requests(spark, rows):
            name = request["source_database"], request["source_table"]
            row = rows.get(name)
            if row is not None and row.state == CURRENT:
                before(name, request["position"])
            self._serve(spark, row, request)

    def _requests(self, spark: SparkSession, rows: Mapping[TableName, ControlRow]) -> list[Row]:
        if self._settings.format.name == ICEBERG:  # audits refuse to request repairs
            return []
        mirror = next(iter(rows.values())).mirror if rows else ""
        if not has_delta(spark):  # audits refuse to request repairs
            return []
        try:
            requests = spark.table(beside(self._settings.names.control, REPAIRS_SUFFIX))
            return requests.where(requests["mirror"] == mirror).orderBy("asked_at").collect()
        except AnalysisException:  # there were no requests yet
            return []
        except SPARK_ERRORS as error:
            raise_fault(error, written=1)
            _log.error("the requests of audits cannot be read, and no table is repaired: %s", first_line(error))
            return []

    def _serve(self, spark: SparkSession, row: ControlRow | None, request: Row) -> None:
        begun = time.monotonic()
        name = table_text((request["source_database"], request["source_table"]))
        counts: dict[str, int] = {}
        reason = None
        try:
            done = repair(spark, self._settings, row, request)
            counts = {"asked": done.keys, "changed": done.changed}
            _log.warning(
                "%s: %d rows are repaired, %d have changed since", name, done.keys - done.changed, done.changed
            )
        except (ReplicaError, *SPARK_ERRORS) as error:
            reason = message_of(error)
            _log.error("%s is not repaired: %s", name, reason)
        control = self._settings.names.control
        make_records(spark, control)
        record = {
            "audited_at": dt.datetime.now(dt.UTC),
            "source_database": request["source_database"],
            "source_table": request["source_table"],
            "target": None if row is None else row.target,
            "audited_position": None if row is None else row.position,
            "audit": REPAIRED if reason is None else NOT_REPAIRED,
            "source_rows": None,
            "target_rows": None,
            "counts": counts,
            "seconds": time.monotonic() - begun,
            "reason": reason,
        }
        append_beside(spark, control, RECORDS, RECORD, [tuple(record[name] for name, _, _ in RECORD)])
        spark.sql(f"DELETE FROM {beside(control, REPAIRS_SUFFIX)} WHERE id = {text_value(request['id'])}")  # noqa: S608


def repair(spark: SparkSession, settings: MirrorSettings, row: ControlRow | None, request: Row) -> Repaired:
    """Write the rows of a request into their target, as one commit.

    Raises:
        SchemaError: the table has changed since the request.
        ReplicaError: the changes since the request cannot be read.
    """
    if row is None or row.state != CURRENT or row.mode != CURRENT_MODE or row.batch < request["batch"]:
        finding = "does not belong to the mirror" if row is None else f"is {row.state} in the mode {row.mode}"
        raise SchemaError(f"the table {finding}.", hint="Re-snapshot it (mirror_resnapshot).")
    key = tuple(request["key"])
    rows = _rows(spark, bytes(request["rows"]), spark.table(row.target).schema)
    keys = rows.select(f"{ROW}.*").select(*map(identifier, key)).distinct().persist()
    try:
        changed = _changed(spark, settings, row, request["position"], key)
        left = 0
        if changed is not None:
            same = " AND ".join(f"old.{identifier(name)} <=> new.{identifier(name)}" for name in key)
            from pyspark.sql import functions as f

            left = keys.alias("old").join(changed.alias("new"), f.expr(same), "left_semi").count()
            flat = rows.select(REMOVED, ROW, *(f.col(f"{ROW}.{identifier(name)}") for name in key))
            rows = flat.alias("old").join(changed.alias("new"), f.expr(same), "left_anti").select(REMOVED, ROW)
        total = keys.count()
        if left < total:
            spark.conf.set(METADATA, Commit(row.mirror, row.batch, row.position, UNNUMBERED).metadata)
            spark.sql(_statement(row.target, key, rows.select(f"{ROW}.*").columns), rows=rows)
        return Repaired(total, left)
    finally:
        keys.unpersist()


def _rows(spark: SparkSession, stream: bytes, wanted: StructType) -> DataFrame:
    """Return the rows of a request.

    Raises:
        SchemaError: the target has other columns than the rows.
    """
    import pyarrow as pa
    from pyspark.sql.types import BooleanType, StructField, StructType

    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    if [field.name for field in table.schema.field(ROW).type] != wanted.names:
        raise SchemaError("the target has other columns now.", hint="Audit it again.")
    # columns outside the key may be NULL
    row = StructType([StructField(field.name, field.dataType) for field in wanted])
    return spark.createDataFrame(table, StructType([StructField(REMOVED, BooleanType()), StructField(ROW, row)]))


def _changed(
    spark: SparkSession, settings: MirrorSettings, row: ControlRow, position: str, key: tuple[str, ...]
) -> DataFrame | None:
    """Return the keys that the binlog changed after `position` and up to the row's position.

    Returns:
        None if both positions are equal.

    Raises:
        SchemaError: there was a statement on the table.
    """
    from pyspark.sql import functions as f

    if position == row.position:
        return None
    database, table = row.name
    with unlogged_calls():  # the options have the password
        reader = spark.read.format("mariadb-binlog").options(**batch_options(settings), includeDdl="true")
    since = reader.options(
        tables=settings.given["tables"], startingPosition=position, endingPosition=row.position
    ).load()
    since = since.where(
        ((f.col("database") == database) & (f.col("table") == table))
        | ((f.col("op") == "ddl") & (f.col("database") == database) & f.col("table").isNull())
    ).persist()
    first = since.where("op = 'ddl'").select("transaction.gtid", "source.sql").first()
    if first is not None:
        raise SchemaError(
            f"a statement was executed after the audit: {first[0]}, {first[1][:200]}.", hint="Audit it again."
        )
    image = image_type(target_columns(row.table, settings.policy))
    sides = [
        since.select(since[side].cast(image).alias(ROW)).where(f"{ROW} IS NOT NULL") for side in ("before", "after")
    ]
    keys = sides[0].unionByName(sides[1]).select(f"{ROW}.*").select(*map(identifier, key))
    return keys.distinct()


def _statement(target: str, key: tuple[str, ...], columns: list[str]) -> str:
    """Return a MERGE that deletes all rows of the requested keys and inserts the server's rows."""
    same = " AND ".join(f"target.{sql_name(name)} <=> told.{ROW}.{sql_name(name)}" for name in key)
    names = ", ".join(map(sql_name, columns))
    values = ", ".join(f"told.{ROW}.{sql_name(name)}" for name in columns)
    return " ".join(
        (
            f"MERGE INTO {braced(target)} AS target USING {{rows}} AS told",
            f"ON told.{REMOVED} AND {same} WHEN MATCHED THEN DELETE",
            f"WHEN NOT MATCHED AND NOT told.{REMOVED} THEN INSERT ({names}) VALUES ({values})",  # noqa: S608
        )
    )
