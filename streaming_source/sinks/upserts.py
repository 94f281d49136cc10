"""The function for foreachBatch that keeps a table equal to the server's, with one MERGE a micro-batch.

`upsert_into` takes the name of a table that Spark can MERGE into (Delta, or another with row-level operations) and the
key columns. Its result works on classic Spark and on Spark Connect. A micro-batch ends at the end of a transaction, and
MERGE is atomic, so readers see all rows of a transaction or none. Applying the same batch again does not change the
table, which a replay after a crash needs.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ConfigError, SchemaError
from streaming_source.sinks.delta_fit import check_delta
from streaming_source.sinks.ended_executions import forget_ended
from streaming_source.sinks.latest_changes import reduced
from streaming_source.sinks.row_events import image_columns
from streaming_source.sinks.sql_text import braced, identifier, text_value, without_substitution

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Upsert", "upsert_into"]


def upsert_into(table: str, keys: Sequence[str], *, columns: Sequence[str] | None = None) -> Upsert:
    """Make the function for `foreachBatch` that inserts, updates and deletes rows of a table by their keys.

    Args:
        table: the target of MERGE INTO: `lake.orders`, or ``delta.`/lake/orders` ``. It has to exist.
        keys: the columns that identify a row, usually the primary key.
        columns: the columns to write. Unset: all columns of the images. Other columns of the table do not change, and
            are NULL in new rows. VARIANT images are cast to the types that the table has for these columns (unset: all
            columns of the table).

    Returns:
        A function of a batch and its number, for classic Spark and Spark Connect. It raises a ConfigError for a batch
        that does not have change rows or lacks a key, and a SchemaError if the table lacks a column.

    Raises:
        ConfigError: no table or no keys are named, or the Delta of the active session is built for another Spark.
    """
    if isinstance(keys, str) or not keys:
        raise ConfigError(f"keys={keys!r} names no columns.", hint='Give a list: keys=["id"].')
    if not table.strip():
        raise ConfigError("upsert_into needs the name of a table.", hint='For example "lake.orders".')
    _check_session()
    return Upsert(table, tuple(keys), None if columns is None else tuple(columns))


class Upsert:
    """A function that applies batches of change rows to a table, made by `upsert_into`. It has plain values, so that
    Spark Connect can send it.
    """

    def __init__(self, table: str, keys: tuple[str, ...], columns: tuple[str, ...] | None) -> None:
        self._table = table
        self._keys = keys
        self._columns = columns

    def __repr__(self) -> str:
        return f"upsert_into({self._table!r}, keys={list(self._keys)!r})"

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        """Apply one micro-batch.

        Raises:
            ConfigError: the batch does not have change rows, or lacks a key column.
            SchemaError: the table lacks a column of the rows.
        """
        with _short_errors():
            self._apply(batch)

    def _apply(self, batch: DataFrame) -> None:
        target = batch.sparkSession.table(self._table).schema
        batch = self._typed(batch, target)
        columns = image_columns(batch)
        if self._columns is not None:
            columns = [name for name in columns if name in {*self._columns, *self._keys}]
        self._check([*columns, *(self._columns or ())], target.names)
        batch.persist()  # every action on a batch reads its range of the binlog again
        try:
            found = _look(batch)
            if found.rows:
                changes = reduced(batch, self._keys, partial=found.partial, domains=found.domains)
                merge = merge_statement(self._table, self._keys, columns, partial=found.partial)
                with without_substitution(batch.sparkSession):
                    batch.sparkSession.sql(merge, changes=changes)
        finally:
            batch.unpersist()
        forget_ended(batch.sparkSession)

    def _typed(self, batch: DataFrame, target: StructType) -> DataFrame:
        """Cast VARIANT images to STRUCTs of the table's columns; return other batches unchanged."""
        from pyspark.sql.types import StructType, VariantType

        if "after" not in batch.columns or not isinstance(batch.schema["after"].dataType, VariantType):
            return batch
        wanted = {*self._keys, *(target.names if self._columns is None else self._columns)}
        image = StructType([field for field in target if field.name in wanted])
        return batch.withColumns({side: batch[side].cast(image) for side in ("before", "after")})

    def _check(self, columns: Sequence[str], there: Sequence[str]) -> None:
        known = {name.lower() for name in there}
        lacking = [name for name in columns if name.lower() not in known]
        if lacking:
            raise SchemaError(
                f"the table {self._table} has no column {', '.join(lacking)}.",
                hint="Add the missing columns with ALTER TABLE … ADD COLUMNS, or name the columns: columns=[…].",
            )


def _check_session() -> None:
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.getActiveSession()
    except ImportError:  # only the client of Spark Connect, before it has a session
        return
    if session is not None:
        check_delta(session)


def _short_errors() -> AbstractContextManager[None]:
    try:
        from streaming_source.sinks.short_errors import short_java_errors
    except ImportError:  # only the client of Spark Connect: it has no py4j, and its own errors
        return nullcontext()
    return short_java_errors()


class _BatchFacts(NamedTuple):
    """The properties of a batch: whether it has a row, an image that lacks columns, and a second domain."""

    rows: bool
    partial: bool
    domains: bool


def _look(batch: DataFrame) -> _BatchFacts:
    from pyspark.sql import functions as f

    if "_gtid" in batch.columns:
        lacks, domain = f.col("_absent").isNotNull(), f.split_part(f.col("_gtid"), f.lit("-"), f.lit(1))
    else:
        lacks = f.col("absent.before").isNotNull() | f.col("absent.after").isNotNull()
        domain = f.col("transaction.domain_id").cast("string")
    (row,) = batch.agg(f.bool_or(lacks), f.min(domain), f.max(domain)).collect()
    return _BatchFacts(rows=row[1] is not None, partial=bool(row[0]), domains=row[1] != row[2])


def merge_statement(table: str, keys: Sequence[str], columns: Sequence[str], *, partial: bool) -> str:
    """Return the MERGE of a reduced batch, which the statement names `{changes}`."""
    changed = ", ".join(f"target.{sql_name(name)} = {new_value(name, keys, partial=partial)}" for name in columns)
    names = ", ".join(map(sql_name, columns))
    values = ", ".join(f"change.{sql_name(name)}" for name in columns)
    return " ".join(
        (
            merge_head(table, keys),
            "WHEN MATCHED AND change._op = 'delete' THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {changed}",
            f"WHEN NOT MATCHED AND change._op <> 'delete' THEN INSERT ({names}) VALUES ({values})",  # noqa: S608  (names are quoted)
        )
    )


def merge_head(table: str, keys: Sequence[str]) -> str:
    """Return the beginning of a MERGE of `{changes}`, up to the comparison of the keys."""
    same = " AND ".join(f"target.{sql_name(key)} <=> change.{sql_name(key)}" for key in keys)
    return f"MERGE INTO {braced(table)} AS target USING {{changes}} AS change ON {same}"


def new_value(name: str, keys: Sequence[str], *, partial: bool) -> str:
    """Return the value of a column after a change: the target's value if the change does not have the column."""
    if not partial or name in keys:
        return f"change.{sql_name(name)}"
    absent = f"coalesce(array_contains(change._absent, {text_value(name)}), false)"
    return f"CASE WHEN {absent} THEN target.{sql_name(name)} ELSE change.{sql_name(name)} END"


def sql_name(name: str) -> str:
    """Return a name in backquotes for SQL with parameters."""
    return braced(identifier(name))
