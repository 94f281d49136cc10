"""Choose Spark's settings for MERGEs, by how large their targets are and how much of them changes.

In: the session of a batch, the works on its tables. Out: settings in that session alone; how many rows a target has at
most. What the user has set stays, or is a limit.

Small plans are interpreted: a MERGE makes the code of 68 projections and of its stages, whatever it changes, and below
some rows that costs more than running the plan does. And where a good part of a target changes, or it is small, its
files are written again: to mark rows as deleted takes two more jobs, and leaves a small file a batch, which each later
MERGE reads.

Spark begins with 200 parts for a shuffle whatever there is to do, and each task then writes 200 small pieces, which is
most of what a MERGE of some thousand rows costs.

The control table tells how many rows and changes were applied to a target since the beginning, which is too much by
each update and delete: after a day of changes a small table would pass for a large one. So a target is counted when it
may have passed a limit or doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.queries.short_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.apply.table_applier import TableApplier

MOST_ROWS: Final = 50_000
"""The rows of the largest target whose plans are interpreted; docs/performance.md has what was measured around it."""
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own values, given by name: the execution of a whole micro-batch hands its tasks what was set as it began, and
that holds in each execution within it which finds nothing set."""
MOST_WHOLE_ROWS: Final = 500_000
"""The rows of the largest target that is written again: with a million, marking rows costs as much."""
COPIED_A_CHANGE: Final = 20
"""How many rows are copied for each change at most, where the target is not small: the old files stay until VACUUM."""
_MARKS: Final = "spark.databricks.delta.merge.deletionVectors.persistent"
WHOLE_FILES: Final = {_MARKS: "false"}
MARKED_ROWS: Final = {_MARKS: "true"}
PARTS: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
"""A checkpoint keeps nothing of this setting, as it does of `spark.sql.shuffle.partitions`."""
SNAPSHOT_PARTS: Final = "spark.databricks.delta.snapshotPartitions"
"""The number of parts that Delta deals the list of a table's files into when it reads that: 50, if nothing is set."""
MOST: Final = "spark.sql.shuffle.partitions"
MOST_SNAPSHOT_PARTS: Final = 50
ROWS_A_PART: Final = 500_000
"""A MERGE sorts a part of its target in memory: so many rows take some hundred megabytes."""
_DOUBLED = 2


class TargetSize(NamedTuple):
    """Tell how many rows a target has at most behind a batch, and how many changes a MERGE brings into it."""

    rows: int
    changes: int

    @property
    def small(self) -> bool:
        """Whether its plans are interpreted."""
        return self.rows <= MOST_ROWS

    @property
    def written_whole(self) -> bool:
        """Whether its files are written again, instead of rows in them being marked."""
        return self.small or self.rows <= min(MOST_WHOLE_ROWS, COPIED_A_CHANGE * self.changes)


class MergeSettings:
    """The settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._plans = _Choice(INTERPRETED, COMPILED)
        self._files = _Choice(WHOLE_FILES, MARKED_ROWS)

    def fit(self, spark: SparkSession, size: TargetSize) -> None:
        """Set how MERGEs into targets of this size are run."""
        self._plans.make(spark, first=size.small)
        self._files.make(spark, first=size.written_whole)


class _Choice:
    """One of two values for each of some settings, unless the user has set one of them."""

    def __init__(self, first: Mapping[str, str], second: Mapping[str, str]) -> None:
        self._first, self._second = first, second
        self._free: bool | None = None

    def make(self, spark: SparkSession, *, first: bool) -> None:
        if self._free is None:  # what stands there now is the user's
            self._free = all(spark.conf.get(name, None) is None for name in self._first)
        if self._free:
            for name, value in (self._first if first else self._second).items():
                spark.conf.set(name, value)


def shuffle_parts(rows: int, cores: int, most: int) -> int:
    """Return how many parts a target of so many rows is shuffled into."""
    return max(1, min(most, max(cores, -(-rows // ROWS_A_PART))))


class ShuffleSize:
    """The setting in the session of a mirror's query."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._most_of_snapshots = MOST_SNAPSHOT_PARTS

    def fit(self, spark: SparkSession, rows: int) -> None:
        """Set the number of parts for a batch whose largest target has so many rows."""
        if self._most is None:  # what stands there now is the user's
            self._most = int(spark.conf.get(PARTS, None) or spark.conf.get(MOST) or 1)
            self._most_of_snapshots = int(spark.conf.get(SNAPSHOT_PARTS, None) or MOST_SNAPSHOT_PARTS)
        parts = shuffle_parts(rows, spark.sparkContext.defaultParallelism, self._most)
        spark.conf.set(PARTS, str(parts))
        spark.conf.set(SNAPSHOT_PARTS, str(min(parts, self._most_of_snapshots)))


class _Counted(NamedTuple):
    """A count of a target, made when so many rows and changes were applied."""

    applied: int = 0
    rows: int = 0


class TargetSizes:
    """The counts of the targets of a mirror, in this start of it."""

    def __init__(self) -> None:
        self._counted: dict[TableName, _Counted] = {}

    def of(self, work: TableApplier) -> TargetSize:
        """Return the size of a target behind a batch; several threads may ask for different ones."""
        name, applied = work.row.name, work.row.rows
        last = self._counted.get(name, _Counted())
        if applied < last.applied:  # the target was made again
            last = _Counted()
        rows = last.rows + applied - last.applied
        if rows > max(MOST_ROWS, _DOUBLED * last.rows):
            try:
                counted = work.count()
            except SPARK_ERRORS:  # what is wrong with the target, its work meets and tells
                counted = None
            if counted is not None:
                rows = counted
                self._counted[name] = _Counted(applied, rows)
        return TargetSize(rows + work.facts.rows, work.facts.changes // (1 + len(work.statements)))
