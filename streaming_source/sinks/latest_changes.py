"""The last state of every key in a batch of change rows: the form of changes that MERGE needs.

`latest_per_key` takes change rows of either shape and the key columns. It returns at most one row per key, with the
table's columns and the outcome. Within a replication domain, sequence number and ordinal decide which change is the
last. Between domains, which MariaDB itself does not order, the later commit time decides. Columns that some images lack
are taken from the changes that set them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError
from streaming_source.sinks.row_events import image_columns, row_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

ADDED = ("_op", "_absent", "_gtid", "_sequence", "_committed")
"""Columns of the result after the table's own."""


def latest_per_key(batch: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Reduce a batch to at most one row per key: the table's columns after the last change, and its outcome.

    After the table's columns come `_op`, `_absent`, `_gtid` and `_sequence`. `_op` is `upsert` or `delete`. `_absent`
    lists columns that no change in the batch set, so that their old values hold; it is NULL if there are none. `_gtid`
    and `_sequence` are those of the last change. A delete has the key, and the known columns of the deleted row. An
    update that changes the key becomes a delete of the old key and an upsert of the new one. The result depends only on
    the batch, so a replayed batch gives the same result.

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
    """Reduce a batch like `latest_per_key`, with what the caller knows of it.

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
    whole = [f.col("row"), f.col("missing")] if not partial else []
    groups = events.groupBy(*(column.alias(f"_by_{place}") for place, column in enumerate(by)))
    last = f.max_by(f.struct(*carried, *whole), order).alias("last")
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
