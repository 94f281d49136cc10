"""The comparison of one table with its copy, at one GTID position.

In: the session, the options of the source, the table, its copy, the position; of a second look, what differed before.
Out: a `TableAudit`. Raised: what keeps the two from being compared, as an error of ours.
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
    """A comparison, and what the next one is to compare with, where that was wanted and something differs."""

    audit: TableAudit
    differing: DataFrame | None


class Comparison(NamedTuple):
    """The arguments that all tables of an audit are compared by."""

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
        """Compare a table with its copy; `asked`: the mirror that is asked to repair what differs. `before` and `keep`
        as with `find_differences`.
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
        """Tell that a table has other columns now than its mirror knows; None where it has not, or cannot be asked."""
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
        told = f"{copy.table} was altered behind {copy.position}, up to which its target is."
        return f"{told} Audit it again when the mirror has followed."


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
    """Ask for the repair of rows that differ; return what is told of it."""
    if way != AS_IT_IS:
        return "rows of a target with a rule, or of another mode than current, are not repaired: mirror_resync"
    try:
        ask_for_repair(asked, table, position, sides, rows, differing, before)
    except ReplicaError as error:
        return str(error)
    return "the mirror is asked for it"
