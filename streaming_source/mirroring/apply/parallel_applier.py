"""Run the work of a micro-batch on all tables in parallel: small targets first, with Spark settings for each size.

In: the work on each table. Out: applied statements; then the row of each table after the micro-batch, or its error.
Each table has its own session, because commit tokens are settings of a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.apply.merge_settings import MergeSettings, ShuffleSize, TargetSizes
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.sinks.short_errors import SPARK_ERRORS
from streaming_source.sinks.side_by_side import side_by_side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.apply.merge_settings import TargetSize
    from streaming_source.mirroring.apply.table_applier import TableApplier
    from streaming_source.mirroring.control.control_row import ControlRow


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
        """Apply the statements at the beginning of the micro-batch. A work that fails has the reason in `failed`."""

        def follow(work: TableApplier) -> None:
            try:
                self._move(work)
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
            groups.setdefault((size.small, size.written_whole), []).append((work, size))
        for _, group in sorted(groups.items(), reverse=True):
            largest = max(size for _, size in group)
            self.fit(spark, largest)  # tasks use the settings of the query's session, plans those of their own

            def write(work: TableApplier, size: TargetSize = largest) -> ControlRow | Exception:
                self._move(work)
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
            if work.part.moved and len(self._sessions) < self._parallel:
                self._sessions.append(work.part.spark)

    def _move(self, work: TableApplier) -> None:
        if not work.part.moved:
            try:
                session = self._sessions.pop()
            except IndexError:
                session = own_session(work.part.query_session)
            work.part.move(session)

    def fit(self, spark: SparkSession, size: TargetSize) -> None:
        """Set the session for the next writes."""
        self._shuffles.fit(spark, size.rows)
        self._settings.fit(spark, size)
