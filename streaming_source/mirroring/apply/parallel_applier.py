"""Parallel work of a micro-batch on all tables, small targets first, with Spark settings for each size.

`ParallelApplier` applies the statements, then writes the rows. It returns the row of each table after the micro-batch,
or the table's error. Each table has its own session, because commit tokens are settings of a session. `TargetSizes`,
`MergeSettings` and `ShuffleSize` choose the settings of a MERGE. `keep_compiled_classes` has to be called before the
first query.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import ReplicaError
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.sinks.queries import SPARK_ERRORS, side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.apply.table_applier import TableApplier
    from streaming_source.mirroring.control.control_table import ControlRow


# Settings for MERGE and shuffles, which only the session of the query gets. A setting of the user is not changed.
#
# Plans of small targets are interpreted, because compiling a MERGE costs more than an interpreted run over few rows.
# Files of a target are rewritten if it is small or many of its rows change. Otherwise rows are marked in deletion
# vectors, which costs two more jobs and leaves a small file in each micro-batch.
#
# The control table counts every update and delete as a row, so it has only an upper limit of the target's rows.
# `TargetSizes` counts a target when that limit passes MOST_ROWS or has doubled.


MOST_ROWS: Final = 50_000
"""Most rows of a target whose plans are interpreted; docs/dev/measurements/spark-merge.md has the measurements."""
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's defaults, set explicitly: a query in a micro-batch otherwise inherits the settings of the batch's start."""

MOST_REWRITTEN_ROWS: Final = 500_000
"""Most rows of a target whose files are rewritten: with a million rows, deletion vectors cost no more."""
COPIED_A_CHANGE: Final = 20
"""Most rows that are copied for each change, if a target is not small. The replaced files stay until VACUUM."""
_MARKS: Final = "spark.databricks.delta.merge.deletionVectors.persistent"

REWRITTEN_FILES: Final = {_MARKS: "false"}

MARKED_ROWS: Final = {_MARKS: "true"}
PARTS: Final = "spark.sql.adaptive.coalescePartitions.initialPartitionNum"
"""Initial number of shuffle partitions. A checkpoint does not store it, unlike `spark.sql.shuffle.partitions`."""
SNAPSHOT_PARTS: Final = "spark.databricks.delta.snapshotPartitions"
"""Number of partitions into which Delta divides the list of a table's files; Delta's default is 50."""
MOST: Final = "spark.sql.shuffle.partitions"
MOST_SNAPSHOT_PARTS: Final = 50
ROWS_A_PART: Final = 500_000
"""Rows in a shuffle partition. A MERGE sorts each partition in memory; this many rows take some hundred megabytes."""
_DOUBLED = 2


class TargetSize(NamedTuple):
    """Upper limit of a target's rows after a micro-batch, and the number of changes that one MERGE applies."""

    rows: int
    changes: int

    @property
    def small(self) -> bool:
        """Whether the plans of the target are interpreted, not compiled."""
        return self.rows <= MOST_ROWS

    @property
    def is_rewritten(self) -> bool:
        """Whether files of the target are rewritten, instead of marking rows in deletion vectors."""
        return self.small or self.rows <= min(MOST_REWRITTEN_ROWS, COPIED_A_CHANGE * self.changes)


class MergeSettings:
    """MERGE settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._plans = _Choice(INTERPRETED, COMPILED)
        self._files = _Choice(REWRITTEN_FILES, MARKED_ROWS)

    def fit(self, spark: SparkSession, size: TargetSize) -> None:
        """Choose the settings for MERGEs into targets of this size."""
        self._plans.make(spark, first=size.small)
        self._files.make(spark, first=size.is_rewritten)


class _Choice:
    """Choice between two values for each of some settings. It changes nothing if the user has set one of them."""

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
    """Return the number of shuffle partitions.

    Args:
        rows: the rows of the target.
        cores: the cores of the Spark application.
        most: the upper limit, which is the user's or Spark's own number of partitions.
    """
    return max(1, min(most, max(cores, -(-rows // ROWS_A_PART))))


class ShuffleSize:
    """Shuffle settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._most_of_snapshots = MOST_SNAPSHOT_PARTS

    def fit(self, spark: SparkSession, rows: int) -> None:
        """Set the number of shuffle partitions for a micro-batch.

        Args:
            spark: the session of the query.
            rows: the rows of the largest target in the micro-batch.
        """
        if self._most is None:  # the mirror has set nothing yet: a value is the user's
            self._most = int(spark.conf.get(PARTS, None) or spark.conf.get(MOST) or 1)
            self._most_of_snapshots = int(spark.conf.get(SNAPSHOT_PARTS, None) or MOST_SNAPSHOT_PARTS)
        parts = shuffle_parts(rows, spark.sparkContext.defaultParallelism, self._most)
        spark.conf.set(PARTS, str(parts))
        spark.conf.set(SNAPSHOT_PARTS, str(min(parts, self._most_of_snapshots)))


class _Counted(NamedTuple):
    """Counted rows of a target, and in `applied` the rows and changes that were applied before the count."""

    applied: int = 0
    rows: int = 0


class TargetSizes:
    """Sizes of the targets of a mirror, since its start."""

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


class ParallelApplier:
    """Threads and sessions for the work on tables; one for each start of a mirror."""

    def __init__(self, parallel: int) -> None:
        self._parallel = parallel
        self._sizes = TargetSizes()
        self._shuffles = ShuffleSize()
        self._settings = MergeSettings()
        self._sessions: list[SparkSession] = []
        """Idle sessions. They are reused because Spark keeps a listener for each session."""

    def follow(self, works: list[TableApplier]) -> None:
        """Apply the statements at the beginning of the micro-batch, and record the error of a table in `failed`."""

        def follow(work: TableApplier) -> None:
            try:
                self._give_session(work)
                work.follow()
            except (NativeWriteError, ReplicaError, *SPARK_ERRORS) as error:
                work.failed = error

        works = [one for one in works if one.statements]
        if works:
            side_by_side(works[0].part.query_session, follow, works, at_once=self._parallel, name="mirror-statements")

    def done(self, works: list[TableApplier]) -> list[tuple[TableApplier, ControlRow | Exception]]:
        """Run the work on all tables, several at a time, and return the results."""
        done = [(one, self._done(one)) for one in works if one.is_over]
        works = [one for one in works if not one.is_over]
        if not works:
            return done
        spark = works[0].part.query_session
        sizes = side_by_side(spark, self._sizes.of, works, at_once=self._parallel, name="mirror-size")
        groups: dict[tuple[bool, bool], list[tuple[TableApplier, TargetSize]]] = {}
        for work, size in zip(works, sizes, strict=True):
            groups.setdefault((size.small, size.is_rewritten), []).append((work, size))
        for _, group in sorted(groups.items(), reverse=True):
            largest = max(size for _, size in group)
            self.fit(spark, largest)  # tasks use the query session's settings, a plan those of its own session

            def write(work: TableApplier, size: TargetSize = largest) -> ControlRow | Exception:
                self._give_session(work)
                self.fit(work.part.spark, size)
                return self._done(work)

            some = [work for work, _ in group]
            results = side_by_side(spark, write, some, at_once=self._parallel, name="mirror")
            done += zip(some, results, strict=True)
        return done

    def _done(self, work: TableApplier) -> ControlRow | Exception:
        try:
            return work.done()
        except (NativeWriteError, ReplicaError, *SPARK_ERRORS) as error:
            return error
        finally:
            if work.part.has_own_session and len(self._sessions) < self._parallel:
                self._sessions.append(work.part.spark)

    def _give_session(self, work: TableApplier) -> None:
        if not work.part.has_own_session:
            try:
                session = self._sessions.pop()
            except IndexError:
                session = own_session(work.part.query_session)
            work.part.use_session(session)

    def fit(self, spark: SparkSession, size: TargetSize) -> None:
        """Choose the MERGE and shuffle settings of a session for the next writes."""
        self._shuffles.fit(spark, size.rows)
        self._settings.fit(spark, size)


# Spark keeps 100 compiled classes in a JVM, as many as the MERGEs of three targets need. With a larger limit, the plans
# of many targets are not compiled again in each micro-batch. A limit that the user has set stays.


SETTING: Final = "spark.sql.codegen.cache.maxEntries"
CLASSES: Final = 4_000
"""Classes of a hundred targets; each takes some ten kilobytes."""
_log = logging.getLogger(__name__)


def keep_compiled_classes(spark: SparkSession) -> None:
    """Let the JVM keep the compiled classes of many targets.

    Spark reads the setting once, at its first compilation (CodeGenerator.cache in Spark's sql/catalyst), and accepts it
    only when a session starts. Until the first compilation, the session's internal configuration can still set it.
    """
    if spark.conf.get(SETTING, None) is not None:
        return
    java: Any = spark._jvm  # noqa: SLF001  (PySpark has no API for it)
    if java.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount():
        _log.warning(
            "this session keeps few compiled classes, so the plans of many targets are compiled again in each batch: "
            "start the session with %s=%d, or call mirror() before any other query",
            SETTING,
            CLASSES,
        )
        return
    spark._jsparkSession.sessionState().conf().setConfString(SETTING, str(CLASSES))  # noqa: SLF001
    # The first compilation has to happen here, because one in another thread or session would read another limit.
    spark.range(1).where("id >= 0").count()
