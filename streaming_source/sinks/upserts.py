"""Function for foreachBatch that keeps a table equal to the server's table, with one MERGE for each micro-batch.

`upsert_into` takes the name of a table that Spark can MERGE into (Delta, or another with row-level operations) and the
key columns. Its result works on classic Spark and on Spark Connect. A micro-batch ends at the end of a transaction, and
MERGE is atomic, so readers see all rows of a transaction or none. Applying the same batch again does not change the
table, which a replay after a crash needs.
"""

from __future__ import annotations

import difflib
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ConfigError, SchemaError
from streaming_source.sinks.delta import check_delta
from streaming_source.sinks.queries import forget_ended
from streaming_source.sinks.sql_text import braced, identifier, text_value, without_substitution

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType
# `row_events` takes a batch of change rows, envelope with typed images or flat, and the key columns. It returns a row
# for each event of a key: `insert`, `update` or `delete`. An update that changes the key is a delete of the old one
# and an insert of the new one. A snapshot row is an insert. VARIANT images, which have no columns yet, are an error,
# and so are keys that the table lacks.
#
# `row` is the image as a STRUCT. Columns that only the before image has are filled in from there, and `missing` lists
# columns that neither image has. `at` orders the events of one replication domain. For system-versioned tables, only
# current rows count: rows of ended versions are dropped, and the update that ends a row is its delete.


FLAT_NAMES = ("_change_type", "_commit_version", "_commit_timestamp", "_gtid", "_sequence", "_absent", "_history")
_ENVELOPE_NAMES = ("op", "before", "after", "transaction", "absent", "history")


def image_columns(batch: DataFrame) -> list[str]:
    """Return the table's columns in a batch of either shape.

    Raises:
        ConfigError: the batch is not one of this source, or its images are VARIANT.
    """
    names = batch.columns
    if set(FLAT_NAMES) <= set(names):
        return [name for name in names if name not in FLAT_NAMES]
    if not set(_ENVELOPE_NAMES) <= set(names):
        lacking = [name for name in _ENVELOPE_NAMES if name not in names]
        raise ConfigError(
            f"these are not complete change rows: {', '.join(lacking)} missing, and they are not flat rows either.",
            hint="Give the batch as the source made it, and select columns of the result.",
        )
    after = batch.schema["after"].dataType
    if after.typeName() != "struct":
        raise ConfigError(
            f"the images are {after.simpleString()}, which has no columns.",
            hint="Read one table with the option table, or cast before and after to a STRUCT of the table's columns.",
        )
    return list(after.names)


def row_events(batch: DataFrame, keys: Sequence[str], *, partial: bool) -> DataFrame:
    """Return the events of each key: columns kind, row, missing, domain, at, committed, gtid, sequence.

    Args:
        batch: change rows of this source.
        keys: the columns that identify a row. An update row records every change of them.
        partial: whether images may lack columns (binlog_row_image). False is faster for flat rows, but a row that lacks
            columns makes the query fail.

    Raises:
        ConfigError: the batch has no image columns, or lacks these keys.
    """
    columns = image_columns(batch)
    _check_keys(keys, columns)
    if "_change_type" in batch.columns:
        if not partial:
            return _events_of_flat(batch, columns)
        batch = _paired(batch, columns)
    return _events_of_envelope(batch, columns, keys, partial=partial)


def _check_keys(keys: Sequence[str], columns: Sequence[str]) -> None:
    if isinstance(keys, str) or not keys:
        raise ConfigError(f"keys={keys!r} names no columns.", hint='Give a list: keys=["id"].')
    for key in keys:
        if key not in columns:
            near = difflib.get_close_matches(key, columns, 1)
            raise ConfigError(
                f"the table has no column {key}.",
                hint=f"Did you mean {near[0]}?" if near else f"Its columns are {', '.join(columns)}.",
            )


def _events_of_envelope(batch: DataFrame, columns: Sequence[str], keys: Sequence[str], *, partial: bool) -> DataFrame:
    from pyspark.sql import functions as f

    ended = f.coalesce(f.col("history"), f.lit(False))
    rows = batch.where(f.col("op").isin("insert", "update", "delete", "read") & ~(ended & (f.col("op") != "update")))
    no_columns = f.array().cast("array<string>")
    lacks_after, lacks_before = (f.coalesce(f.col(f"absent.{side}"), no_columns) for side in ("after", "before"))

    def filled(name: str) -> Column:
        if not partial:
            return _field("after", name).alias(name)
        from_before = (f.col("op") == "update") & f.array_contains(lacks_after, name)
        return f.when(from_before, _field("before", name)).otherwise(_field("after", name)).alias(name)

    rows = rows.withColumns(
        {
            "_new": f.struct(*map(filled, columns)),
            "_old": f.struct(*(_field("before", name).alias(name) for name in columns)),
            "_missing": f.when(f.col("op") == "update", f.array_intersect(lacks_after, lacks_before)).otherwise(
                no_columns
            ),
        }
    )
    key_changed = f.lit(False)
    for key in keys:
        key_changed |= ~_field("_new", key).eqNullSafe(_field("_old", key))
    complete_insert = f.when(
        f.size("_missing") > 0,
        f.raise_error(
            f.concat(
                f.lit("a row changed its key in transaction "),
                f.col("transaction.gtid"),
                f.lit(" and its images lack columns: set binlog_row_image=FULL or FULL_NODUP on the primary."),
            )
        ),
    ).otherwise(f.col("_missing"))

    def event(step: int, kind: str, row: str, missing: Column) -> Column:
        return f.struct(
            f.lit(step).alias("step"),
            f.lit(kind).alias("kind"),
            f.col(row).alias("row"),
            missing.cast("array<string>").alias("missing"),
        )

    deleted = event(0, "delete", "_old", lacks_before)
    happened = (
        f.when((f.col("op") == "delete") | ended, f.array(deleted))
        .when(f.col("op").isin("insert", "read"), f.array(event(1, "insert", "_new", no_columns)))
        .when(key_changed, f.array(deleted, event(1, "insert", "_new", complete_insert)))
        .otherwise(f.array(event(1, "update", "_new", f.col("_missing"))))
    )
    number, ordinal = f.col("transaction.sequence_number"), f.col("transaction.ordinal")
    return rows.select("transaction", f.explode(happened).alias("event")).select(
        f.col("event.kind").alias("kind"),
        f.col("event.row").alias("row"),
        f.col("event.missing").alias("missing"),
        f.col("transaction.domain_id").alias("domain"),
        f.struct(number.alias("number"), ordinal.alias("ordinal"), f.col("event.step").alias("step")).alias("at"),
        f.col("transaction.commit_timestamp").alias("committed"),
        f.col("transaction.gtid").alias("gtid"),
        sequence_text(number, ordinal).alias("sequence"),
    )


def sequence_text(number: Column, ordinal: Column) -> Column:
    """Return the text that sorts the row changes of a domain: `_sequence` of the flat shape."""
    from pyspark.sql import functions as f

    return f.concat_ws(".", f.lpad(number.cast("string"), 20, "0"), f.lpad(ordinal.cast("string"), 12, "0"))


def _events_of_flat(batch: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Make events of whole images: a preimage deletes its key, and the postimage, one step later, inserts its own."""
    from pyspark.sql import functions as f

    change, ended = f.col("_change_type"), f.coalesce(f.col("_history"), f.lit(False))
    partial = f.raise_error(f.concat(f.lit("the row lacks columns, and whole images were expected: "), f.col("_gtid")))
    first = change == "update_preimage"
    return batch.where(~(ended & change.isin("insert", "delete"))).select(
        f.when(first | (change == "delete") | ended, "delete").otherwise("insert").alias("kind"),
        f.struct(*(f.col(identifier(name)).alias(name) for name in columns)).alias("row"),
        f.when(f.col("_absent").isNotNull(), partial).otherwise(f.array()).cast("array<string>").alias("missing"),
        f.split_part(f.col("_gtid"), f.lit("-"), f.lit(1)).cast("bigint").alias("domain"),
        f.struct(f.col("_sequence").alias("sequence"), f.when(first, 0).otherwise(1).alias("step")).alias("at"),
        f.col("_commit_timestamp").alias("committed"),
        f.col("_gtid").alias("gtid"),
        f.col("_sequence").alias("sequence"),
    )


def _paired(batch: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Join flat rows into envelope rows: the two rows of an update, which share GTID and _sequence, become one."""
    from pyspark.sql import functions as f

    change = f.col("_change_type")
    is_before = change.isin("update_preimage", "delete")

    def first(value: Column, where: Column) -> Column:
        return f.first(f.when(where, value), ignorenulls=True)

    image = f.struct(*(f.col(identifier(name)).alias(name) for name in columns))
    paired = batch.groupBy("_gtid", "_sequence").agg(
        f.max(f.when(change.startswith("update"), "update").otherwise(change)).alias("op"),
        first(image, is_before).alias("before"),
        first(image, ~is_before).alias("after"),
        first(f.col("_absent"), is_before).alias("_absent_before"),
        first(f.col("_absent"), ~is_before).alias("_absent_after"),
        f.bool_or("_history").alias("history"),
        f.first("_commit_timestamp").alias("_commit_timestamp"),
    )
    number, ordinal = (
        f.split_part("_sequence", f.lit("."), f.lit(part)).cast(kind)
        for part, kind in ((1, "decimal(20,0)"), (2, "bigint"))
    )
    return paired.select(
        "op",
        "before",
        "after",
        "history",
        f.struct(
            f.col("_gtid").alias("gtid"),
            f.split_part(f.col("_gtid"), f.lit("-"), f.lit(1)).cast("bigint").alias("domain_id"),
            number.alias("sequence_number"),
            ordinal.alias("ordinal"),
            f.col("_commit_timestamp").alias("commit_timestamp"),
        ).alias("transaction"),
        f.struct(f.col("_absent_before").alias("before"), f.col("_absent_after").alias("after")).alias("absent"),
    )


def _field(struct: str, name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(struct).getField(name)


# `latest_per_key` takes change rows of either shape and the key columns. It returns at most one row per key, with the
# table's columns and the outcome. Within a replication domain, sequence number and ordinal decide which change is the
# last. Between domains, which MariaDB itself does not order, the later commit time decides. Columns that some images
# lack are taken from the changes that set them.


ADDED = ("_op", "_absent", "_gtid", "_sequence", "_committed")
"""Columns of the result after the table's own."""


def latest_per_key(batch: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Reduce a batch to at most one row per key: the table's columns after the last change, and its outcome.

    After the table's columns come `_op` (`upsert` or `delete`), `_absent`, and `_gtid` and `_sequence` of the last
    change. `_absent` lists columns that no change in the batch has set, so that their old values hold; NULL means none.
    A delete has the key, and the known columns of the deleted row. An update of the key becomes a delete of the old key
    and an upsert of the new one. A replayed batch gives the same result.

    Args:
        batch: change rows of this source: flat, or envelope with typed images.
        keys: the columns that identify a row, usually the primary key. NULL counts as a value.

    Returns:
        A DataFrame over the batch. It is valid as long as the batch is, and evaluated when it is used.

    Raises:
        ConfigError: the batch does not have change rows with typed columns, or lacks these keys.
    """
    return reduced(batch, keys, partial=True, domains=True)


def reduced(
    batch: DataFrame, keys: Sequence[str], *, partial: bool, domains: bool, last_values: bool = False
) -> DataFrame:
    """Reduce a batch like `latest_per_key`, but skip work that the caller knows to be unnecessary.

    Args:
        batch: as in `latest_per_key`.
        keys: as in `latest_per_key`.
        partial: whether images may lack columns.
        domains: whether the batch may have several replication domains.
        last_values: whether the values of deleted rows are needed. Then `_absent` also lists their unknown columns, and
            `_committed` is the commit time of the last change.
    """
    columns = image_columns(batch)
    taken = [name for name in columns if name in ADDED]
    if taken:
        raise ConfigError(
            f"the table's column {taken[0]} has the name of a column that latest_per_key adds.",
            hint="Rename it in the images first.",
        )
    from pyspark.sql import functions as f

    events = row_events(batch, keys, partial=partial)
    identity = [f.col("row").getField(key) for key in keys]
    if domains:
        events = _last(events, [*identity, f.col("domain")], columns, f.col("at"), partial=partial)
        events = _last(events, identity, columns, f.struct("committed", "domain"), partial=partial)
    else:
        events = _last(events, identity, columns, f.col("at"), partial=partial)
    counts = f.lit(True) if last_values else f.col("kind") != "delete"
    return events.select(
        *(f.col("row").getField(name).alias(name) for name in columns),
        f.when(f.col("kind") == "delete", "delete").otherwise("upsert").alias("_op"),
        f.when((f.size("missing") > 0) & counts, f.col("missing")).alias("_absent"),
        f.col("gtid").alias("_gtid"),
        f.col("sequence").alias("_sequence"),
        *([f.col("committed").alias("_committed")] if last_values else []),
    )


def _last(
    events: DataFrame, by: Sequence[Column], columns: Sequence[str], order: Column, *, partial: bool
) -> DataFrame:
    """Return the last event of each group. Its row has the newest value of every column that was not missing."""
    from pyspark.sql import functions as f

    carried = ("kind", "domain", "committed", "gtid", "sequence")
    images = [f.col("row"), f.col("missing")] if not partial else []
    groups = events.groupBy(*(column.alias(f"_by_{place}") for place, column in enumerate(by)))
    last = f.max_by(f.struct(*carried, *images), order).alias("last")
    if not partial:
        return groups.agg(last).select("last.*")
    newest = []
    for place, name in enumerate(columns):
        value = f.struct(f.col("row").getField(name).alias("value"))
        newest.append(f.max_by(value, f.when(~f.array_contains("missing", name), order)).alias(f"_new_{place}"))
    states = groups.agg(last, *newest)
    no_name = f.lit(None).cast("string")
    missing = [f.when(f.col(f"_new_{place}").isNull(), name).otherwise(no_name) for place, name in enumerate(columns)]
    return states.select(
        *(f.col(f"last.{name}") for name in carried),
        f.struct(*(f.col(f"_new_{place}").getField("value").alias(name) for place, name in enumerate(columns))).alias(
            "row"
        ),
        f.array_compact(f.array(*missing)).alias("missing"),
    )


__all__ = ["Upsert", "upsert_into"]


def upsert_into(table: str, keys: Sequence[str], *, columns: Sequence[str] | None = None) -> Upsert:
    """Make the function for `foreachBatch` that inserts, updates and deletes rows of a table by their keys.

    Args:
        table: the target of MERGE INTO: `lake.orders`, or ``delta.`/lake/orders` ``. It has to exist.
        keys: the columns that identify a row, usually the primary key.
        columns: the columns to write. Unset: all columns of the images; with VARIANT images, all columns of the table.
            Other columns of the table do not change, and are NULL in new rows. VARIANT values are cast to the types of
            the table.

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
    """Function that applies batches of change rows to a table, made by `upsert_into`.

    It has plain values, so that Spark Connect can send it.
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
            found = _facts_of(batch)
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

    def _check(self, columns: Sequence[str], existing: Sequence[str]) -> None:
        known = {name.lower() for name in existing}
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
        from streaming_source.sinks.queries import short_java_errors
    except ImportError:  # only the client of Spark Connect: it has no py4j, and its own errors
        return nullcontext()
    return short_java_errors()


class _BatchFacts(NamedTuple):
    """Properties of a batch: whether it has a row, an image that lacks columns, and a second domain."""

    rows: bool
    partial: bool
    domains: bool


def _facts_of(batch: DataFrame) -> _BatchFacts:
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
