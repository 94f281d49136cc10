"""The comparison of one table with its copy, at one GTID position.

`Comparison.audited` takes the table, its copy and the position, and returns a `TableAudit`. A recheck also takes the
rows that differed before. If the two cannot be compared, it raises an error of this project.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.errors import ReplicaError
from replica.schema.text.naming import column_key
from streaming_source.auditing.mirror.mirrored_rows import AS_IT_IS, MirroredRows
from streaming_source.auditing.mirror.repair_request import AskedOf, ask_for_repair
from streaming_source.auditing.result import KINDS, TableAudit
from streaming_source.auditing.rows.buckets import BucketSummary, ComparedRows, bucket_summaries
from streaming_source.auditing.rows.columns import compared_columns, key_columns
from streaming_source.auditing.rows.differences import FoundDifferences, find_differences
from streaming_source.auditing.sources import read_source
from streaming_source.auditing.targets import read_target
from streaming_source.auditing.typed_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.auditing.mirror.from_mirror import MirroredCopy


class Look(NamedTuple):
    """The outcome of a comparison.

    `differing`: the rows that the next comparison rechecks; None if none was asked for, or nothing differs.
    """

    audit: TableAudit
    differing: DataFrame | None


class Comparison(NamedTuple):
    """The arguments that are the same for all tables of an audit."""

    spark: SparkSession
    options: Mapping[str, str]
    ignore: tuple[str, ...]
    buckets: int
    shown: int

    def audited(
        self,
        table: str,
        copy: Any,
        position: str,
        keys: Collection[str] | None,
        way: MirroredRows = AS_IT_IS,
        asked: AskedOf | None = None,
        *,
        before: DataFrame | None = None,
        keep: bool = False,
    ) -> Look:
        """Compare a table with its copy.

        Args:
            table: the table, as database.table.
            copy: the target, as in `audit`.
            position: the GTID position at which the table is read.
            keys: the columns that identify a row; None for the primary key.
            way: how rows of the table become rows of the target.
            asked: the mirror to ask for a repair of the rows that differ.
            before: the rows that differed in an earlier comparison, as in `find_differences`.
            keep: whether to return the differing rows for a recheck.
        """
        begun = time.monotonic()
        with typed_errors():
            target = read_target(self.spark, table, copy)
            source = way.of_table(read_source(self.spark, self.options, table, position))
            copied = way.of_target(target.rows)
            columns = compared_columns(table, source.schema, copied.schema, self.ignore)
            rows = ComparedRows(columns, key_columns(table, source.schema, keys), self.buckets)
            ours = bucket_summaries(source, rows, source=True)
            theirs = bucket_summaries(copied, rows, source=False)
            differing = [number for number in ours.keys() | theirs.keys() if ours.get(number) != theirs.get(number)]
            differences = FoundDifferences(dict.fromkeys(KINDS, 0), ())
            if differing:
                differences = find_differences(source, copied, rows, differing, self.shown, before=before, keep=keep)
            repair = None
            if differences.buckets and asked is not None:
                repair = _asked(asked, way, table, position, (source, copied), rows, differing, before)
        here, there = (sum(found.values(), BucketSummary()) for found in (ours, theirs))
        looked = TableAudit(
            table=table,
            target=target.name,
            version=target.version,
            position=position,
            source_rows=here.rows,
            target_rows=there.rows,
            source_hash=here.text,
            target_hash=there.text,
            buckets=self.buckets,
            differing_buckets=differences.buckets,
            counts=differences.counts,
            differences=differences.examples,
            keys=rows.keys,
            seconds=time.monotonic() - begun,
            repair=repair,
            cascaded=differences.passed,
        )
        return Look(looked, differences.rows)

    def altered(self, copy: MirroredCopy) -> str | None:
        """Return a text if the table's columns are not those that its mirror knows; None if they are, or cannot be
        read.
        """
        try:
            with typed_errors():
                columns = read_source(self.spark, self.options, copy.table, copy.position).columns
        except ReplicaError:
            return None
        now = {column_key(name) for name in columns}
        known = {column_key(column.name): column.hidden for column in copy.definition.columns}
        shown = {name for name, hidden in known.items() if not hidden}
        if shown <= now <= known.keys():
            return None
        told = f"{copy.table} was altered after {copy.position}, the position of its target."
        return f"{told} Audit it again when the mirror has applied the change."


def _asked(
    asked: AskedOf,
    way: MirroredRows,
    table: str,
    position: str,
    sides: tuple[DataFrame, DataFrame],
    rows: ComparedRows,
    differing: Collection[int],
    before: DataFrame | None,
) -> str:
    """Ask for the repair of rows that differ; return the text that the result shows."""
    if way != AS_IT_IS:
        return "rows of a target with a rule, or of a mode other than current, are not repaired: use mirror_resnapshot"
    try:
        ask_for_repair(asked, table, position, sides, rows, differing, before)
    except ReplicaError as error:
        return str(error)
    return "the mirror is asked for it"
