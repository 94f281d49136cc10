"""The mode history: every version of every row, with its beginning and its end (a slowly changing dimension of type 2).

The target has all versions of a micro-batch, also those that began and ended in one transaction. One MERGE closes the
versions that were valid before the micro-batch and inserts the new ones. A version is identified by its key and by the
place of the change that began it (GTID and sequence). So the MERGE of a repeated micro-batch changes nothing. Columns
that an image lacks have the values of the previous version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.modes.mode import SparkChange, own_columns
from streaming_source.schema.target_modes import HISTORY
from streaming_source.sinks.sql_text import identifier, text_value
from streaming_source.sinks.upserts import merge_head, row_events, sequence_text, sql_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, WindowSpec

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.modes.mode import EndReason, NetChanges
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.transforms.transformed_images import TargetColumn

_PLACE = ("gtid", "committed", "sequence")
"""Fields of the place of a change, at which a version begins or ends."""


class History:
    """Mode that keeps all versions of a row, with one MERGE of all changes of each key."""

    name = HISTORY
    append_only = False
    by_key = True
    needs_latest_only = False
    appends_values = False
    cascades: frozenset[str] = frozenset({"CASCADE"})

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the table's columns, and the columns for the validity of a version.

        All columns of the table are nullable: versions that are older than an added column have NULL in it.
        """
        return (*(column._replace(nullable=True) for column in columns), *own_columns(HISTORY))

    def appended(self, part: NetChanges) -> DataFrame:
        """Return each row as a valid version."""
        from pyspark.sql import functions as f

        number, ordinal = f.col("transaction.sequence_number"), f.col("transaction.ordinal")
        begun = f.struct(
            f.col("transaction.gtid"),
            f.col("transaction.commit_timestamp").alias("committed"),
            sequence_text(number, ordinal).alias("sequence"),
        )
        return part.rows.select("after.*", *_own(begun, f.struct(*(f.lit(None).alias(name) for name in _PLACE))))

    def merge(self, part: NetChanges) -> SparkChange:
        """Close and open versions for all changes of a key, in their order."""
        return SparkChange(_closed_and_opened(part), _merge(part))

    def can_append(self, target: TableWriter) -> bool:  # noqa: ARG002  (the answer does not depend on the target)
        """Return True: the versions that a re-snapshot replaces are already closed."""
        return True

    def end_all(self, target: TableWriter, statement: StatementRow, why: EndReason, at: Commit) -> None:  # noqa: ARG002
        """Close all valid versions, whatever the reason; a re-snapshot opens new ones."""
        target.end_rows(self, statement, at)

    def end_statement(self, target: TableWriter, statement: StatementRow) -> str:
        """Return the UPDATE that closes all valid versions."""
        closed = f"_valid_to = timestamp_micros({statement.committed_us}), _current = false"
        place = f"_to_gtid = {text_value(statement.gtid)}, _to_sequence = {text_value(statement.sequence)}"
        return f"UPDATE {target.name} SET {closed}, {place} WHERE _current"  # noqa: S608  (names and texts are quoted)

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Return the actions that close the versions. SET NULL is refused, because it would need a new version."""
        assert not nulls, "it is not among `cascades`"  # noqa: S101
        ended = {"_valid_to": "committed", "_to_gtid": "gtid", "_to_sequence": "sequence"}
        values = ", ".join(f"target.{name} = gone.{value}" for name, value in ended.items())
        return f"AND target._current WHEN MATCHED AND gone.deleted THEN UPDATE SET {values}, target._current = false"


def _own(begun: Column, ended: Column) -> list[Column]:
    """Return the metadata columns of a version from its first and last place."""
    values = {
        "_valid_from": begun.getField("committed"),
        "_valid_to": ended.getField("committed"),
        "_from_gtid": begun.getField("gtid"),
        "_to_gtid": ended.getField("gtid"),
        "_from_sequence": begun.getField("sequence"),
        "_to_sequence": ended.getField("sequence"),
        "_current": ended.getField("gtid").isNull(),
    }
    return [values[column.name].cast(column.type).alias(column.name) for column in own_columns(HISTORY)]


def _closed_and_opened(part: NetChanges) -> DataFrame:
    """Return the source rows of the MERGE: one for each new version, and one `_close` row for each key.

    A `_close` row ends the version that was valid before the micro-batch, at the place of the key's first change. The
    `_close` row also has the beginning of the version that is valid after the micro-batch. If the target already has a
    version with this beginning, the micro-batch is already applied.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    events = row_events(part.rows, part.keys, partial=part.partial)
    key = [f.col("row").getField(name) for name in part.keys]
    order = [f.col("at")]
    if part.domains:  # MariaDB has no order between domains: the domain whose last commit is the latest wins
        last = f.max_by("committed", "at").over(Window.partitionBy(*key, "domain"))
        events = events.withColumn("domain_end", last)
        order = [f.col("domain_end"), f.col("domain"), *order]
    in_order = Window.partitionBy(*key).orderBy(*order)
    if part.partial:
        events = _filled(events, part, in_order)
    place = f.struct(*_PLACE)
    all_rows = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    left = f.when(f.col("kind") != "delete", place)
    events = events.withColumns(
        {
            "number": f.row_number().over(in_order),
            "next": f.lead(place).over(in_order),
            "left": f.last(left).over(all_rows),
        }
    )
    closing = f.struct(f.lit(True).alias("close"), f.col("left").alias("begun"), place.alias("ended"))
    opening = f.struct(f.lit(False).alias("close"), place.alias("begun"), f.col("next").alias("ended"))
    wanted = f.array(f.when(f.col("number") == 1, closing), f.when(f.col("kind") != "delete", opening))
    rows = events.withColumn("version", f.explode(f.array_compact(wanted)))
    begun, ended = (f.col("version").getField(name) for name in ("begun", "ended"))
    return rows.select(
        *(f.col("row").getField(name).alias(name) for name in part.columns),
        *_own(begun, ended),
        f.col("version.close").alias("_close"),
    )


def _filled(events: DataFrame, part: NetChanges, in_order: WindowSpec) -> DataFrame:
    """Fill the columns that each image lacks, from the version before in the micro-batch or in the target."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    # The image of an INSERT is complete, so the window hands no value of a deleted row on to its successor.
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    current = part.target.rows().where("_current")
    known = current.select(f.struct(*map(identifier, part.columns)).alias("known"))
    same = f.lit(True)
    for name in part.keys:
        same &= f.col("row").getField(name).eqNullSafe(f.col("known").getField(name))

    def value(name: str) -> Column:
        image = f.struct(f.col("row").getField(name).alias("value"))
        newest = f.last(f.when(~f.array_contains("missing", name), image), ignorenulls=True).over(so_far)
        older = f.col("known").getField(name)
        return f.when(newest.isNull(), older).otherwise(newest.getField("value")).alias(name)

    return events.join(known, same, "left").withColumn("row", f.struct(*map(value, part.columns)))


def _merge(part: NetChanges) -> str:
    names = [*map(sql_name, part.columns), *(column.name for column in own_columns(HISTORY))]
    ends = ("_valid_to", "_to_gtid", "_to_sequence", "_current")
    same = "(target._from_gtid <=> change._from_gtid AND target._from_sequence <=> change._from_sequence)"
    return " ".join(
        (
            f"{merge_head(part.target.name, part.keys)}",
            f"AND CASE WHEN change._close THEN target._current AND NOT {same} ELSE {same} END",
            f"WHEN MATCHED AND change._close THEN UPDATE SET {', '.join(f'target.{n} = change.{n}' for n in ends)}",
            "WHEN NOT MATCHED AND NOT change._close",
            f"THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f'change.{name}' for name in names)})",  # noqa: S608
        )
    )
