"""Spark settings for MERGEs, by the size of their targets and the number of changes.

In: the session of a micro-batch, the work on its tables. Out: settings in that session only, and an upper limit of the
rows of each target. A setting of the user stays, or is an upper limit.

Small plans are interpreted: each MERGE generates code for 68 projections and its stages, which costs more than an
interpreted run over few rows. Files of a target are rewritten if it is small or many of its rows change. Deletion
vectors would need two more jobs, and leave a small file in each micro-batch, which later MERGEs read.

Spark starts with 200 shuffle partitions whatever the data, and each task then writes 200 small pieces. This is most of
the cost of a MERGE of some thousand rows.

The control table has the number of rows and changes that were applied, which counts every update and delete as a row.
So a target is counted when it may have passed a limit or doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming_source.sinks.short_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.apply.table_applier import TableApplier

MOST_ROWS: Final = 50_000
"""Most rows of a target whose plans are interpreted; docs/dev/measurements/spark-merge.md has the measurements."""
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's defaults, set explicitly: executions within a micro-batch otherwise inherit the settings from its start."""
MOST_WHOLE_ROWS: Final = 500_000
"""Most rows of a target whose files are rewritten: with a million rows, deletion vectors cost no more."""
COPIED_A_CHANGE: Final = 20
"""Most rows that are copied for each change of a target that is not small: the old files stay until VACUUM."""
_MARKS: Final = "spark.databricks.delta.merge.deletionVectors.persistent"
WHOLE_FILES: Final = {_MARKS: "false"}
MARKED_ROWS: Final = {_MARKS: "true"}
PARTS: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
"""Initial number of shuffle partitions. A checkpoint does not store it, unlike `spark.sql.shuffle.partitions`."""
SNAPSHOT_PARTS: Final = "spark.databricks.delta.snapshotPartitions"
"""Number of partitions into which Delta divides the list of a table's files; Delta's default is 50."""
MOST: Final = "spark.sql.shuffle.partitions"
MOST_SNAPSHOT_PARTS: Final = 50
ROWS_A_PART: Final = 500_000
"""Rows in a shuffle partition: a MERGE sorts each in memory, and so many rows take some hundred megabytes."""
_DOUBLED = 2


class TargetSize(NamedTuple):
    """Upper limit of a target's rows after a micro-batch, and the number of changes that one MERGE applies."""

    rows: int
    changes: int

    @property
    def small(self) -> bool:
        """Whether the plans of the target are interpreted."""
        return self.rows <= MOST_ROWS

    @property
    def written_whole(self) -> bool:
        """Whether files of the target are rewritten, instead of marking rows in deletion vectors."""
        return self.small or self.rows <= min(MOST_WHOLE_ROWS, COPIED_A_CHANGE * self.changes)


class MergeSettings:
    """MERGE settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._plans = _Choice(INTERPRETED, COMPILED)
        self._files = _Choice(WHOLE_FILES, MARKED_ROWS)

    def fit(self, spark: SparkSession, size: TargetSize) -> None:
        """Set how MERGEs into targets of this size are run."""
        self._plans.make(spark, first=size.small)
        self._files.make(spark, first=size.written_whole)


class _Choice:
    """One of two values for some settings, unless the user has set one of the settings."""

    def __init__(self, first: Mapping[str, str], second: Mapping[str, str]) -> None:
        self._first, self._second = first, second
        self._free: bool | None = None

    def make(self, spark: SparkSession, *, first: bool) -> None:
        if self._free is None:  # the mirror has set nothing yet: a value is the user's
            self._free = all(spark.conf.get(name, None) is None for name in self._first)
        if self._free:
            for name, value in (self._first if first else self._second).items():
                spark.conf.set(name, value)


def shuffle_parts(rows: int, cores: int, most: int) -> int:
    """Return the number of shuffle partitions for a target with so many rows."""
    return max(1, min(most, max(cores, -(-rows // ROWS_A_PART))))


class ShuffleSize:
    """Shuffle settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._most_of_snapshots = MOST_SNAPSHOT_PARTS

    def fit(self, spark: SparkSession, rows: int) -> None:
        """Set the number of shuffle partitions for a micro-batch; `rows`: the rows of its largest target."""
        if self._most is None:  # the mirror has set nothing yet: a value is the user's
            self._most = int(spark.conf.get(PARTS, None) or spark.conf.get(MOST) or 1)
            self._most_of_snapshots = int(spark.conf.get(SNAPSHOT_PARTS, None) or MOST_SNAPSHOT_PARTS)
        parts = shuffle_parts(rows, spark.sparkContext.defaultParallelism, self._most)
        spark.conf.set(PARTS, str(parts))
        spark.conf.set(SNAPSHOT_PARTS, str(min(parts, self._most_of_snapshots)))


class _Counted(NamedTuple):
    """Count of a target, and the number of rows and changes that were applied before it."""

    applied: int = 0
    rows: int = 0


class TargetSizes:
    """Counts of the targets of a mirror, in one start of it."""

    def __init__(self) -> None:
        self._counted: dict[TableName, _Counted] = {}

    def of(self, work: TableApplier) -> TargetSize:
        """Return the size of a target after a micro-batch. Several threads may call it for different targets."""
        name, applied = work.row.name, work.row.rows
        last = self._counted.get(name, _Counted())
        if applied < last.applied:  # the target was created again
            last = _Counted()
        rows = last.rows + applied - last.applied
        if rows > max(MOST_ROWS, _DOUBLED * last.rows):
            try:
                counted = work.count()
            except SPARK_ERRORS:  # the work on the target reports its fault
                counted = None
            if counted is not None:
                rows = counted
                self._counted[name] = _Counted(applied, rows)
        return TargetSize(rows + work.facts.rows, work.facts.changes // (1 + len(work.statements)))
