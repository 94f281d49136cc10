"""Change rows of either shape as events of keys, which `latest_per_key` and `upsert_into` share.

`row_events` takes a batch of change rows, envelope with typed images or flat, and the key columns. It returns a row for
each event of a key: `insert`, `update` or `delete`. An update that changes the key is a delete of the old one and an
insert of the new one. A snapshot row is an insert. VARIANT images, which have no columns yet, are an error, and so are
keys that the table lacks.

`row` is the image as a STRUCT. Columns that only the before image has are filled in from there, and `missing` lists
columns that neither image has. `at` orders the events of one replication domain. For system-versioned tables, only
current rows count: rows of ended versions are dropped, and the update that ends a row is its delete.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from replica.errors import ConfigError
from streaming_source.sinks.sql_text import identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

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
        partial: whether images may lack columns (binlog_row_image). False is faster for flat rows, and then a row that
            lacks some makes the query fail.

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
    moved = f.lit(False)
    for key in keys:
        moved |= ~_field("_new", key).eqNullSafe(_field("_old", key))
    whole_when_moved = f.when(
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

    gone = event(0, "delete", "_old", lacks_before)
    happened = (
        f.when((f.col("op") == "delete") | ended, f.array(gone))
        .when(f.col("op").isin("insert", "read"), f.array(event(1, "insert", "_new", no_columns)))
        .when(moved, f.array(gone, event(1, "insert", "_new", whole_when_moved)))
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
