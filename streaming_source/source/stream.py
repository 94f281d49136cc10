"""Spark's stream reader: offsets as JSON and ReadLimits for Spark, the planner on the driver, the row reader in tasks.

Spark builds a `ChangeStreamReader` in two processes and pickles one of the copies into every task. So an instance holds
plain values until its first planning call, which makes the planner and its replica thread. A pickle carries neither the
planner nor the options, because the options hold the password.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from streaming_source.driver.same_version import OfThisVersion
from streaming_source.driver.spark_border import spark_border
from streaming_source.offsets.offset import SourceOffset
from streaming_source.rows.reader import read_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streaming_source.options.source_options import SourceOptions
    from streaming_source.planning.planner import ChangePlanner
    from streaming_source.rows.read_plan import ReadPlan

CLOSE_TIMEOUT_S = 2.0
"""Most seconds in which a stopped query closes the connection to the primary. Spark waits about as long for its Python
processes.
"""


class ChangeStreamReader(OfThisVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's reader of a stream.

    Attributes:
        options: the options of the query; None in tasks.
    """

    ends_before_statements = False
    """Whether a batch ends before a statement on one of its tables. The mirror's reader sets it."""

    def __init__(self, options: SourceOptions, plan: ReadPlan) -> None:
        self._options: SourceOptions | None = options
        self._plan = plan
        self._planner: ChangePlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": None, "_plan": self._plan, "_planner": None}

    def __repr__(self) -> str:
        return f"ChangeStreamReader({self._plan.title})"

    def _planning(self) -> ChangePlanner:
        if self._planner is None:
            from streaming_source.planning.open_planner import open_planner

            if self._options is None:
                raise RuntimeError("only the process that plans the query may ask for offsets")
            self._planner = open_planner(self._options, self._plan, borders=self.ends_before_statements)
            signal.signal(signal.SIGTERM, self._terminated)
        return self._planner

    def _terminated(self, *_: object) -> None:
        """Close the connection to the primary and exit. `query.stop()` sends SIGTERM and calls no method."""
        # This runs in another thread, because this thread may hold a lock that closing needs.
        closing = threading.Thread(target=self.stop, daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        os._exit(0)

    # -- in the order Spark calls them -----------------------------------------------------------------------------

    @spark_border()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        self._planning().prepare_available_now()

    @spark_border()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark takes one kind of limit. The planner applies the options for rows and for bytes, whichever kind Spark
        # passes.
        if self._options is not None and self._options.max_rows_per_trigger is not None:
            return ReadMaxRows(self._options.max_rows_per_trigger)
        return ReadMaxBytes(self._options.max_bytes_per_trigger if self._options else 0)

    @spark_border()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._planning().initial_offset().json()

    @spark_border()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = SourceOffset.parse(start)
        after = self._planning().latest_offset(before, bounded=not isinstance(limit, ReadAllAvailable))
        return start if after == before else after.json()

    @spark_border()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._planner.report() if self._planner else None

    @spark_border()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(self._planning().partitions(SourceOffset.parse(start), SourceOffset.parse(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with spark_border():
            yield from read_changes(partition, self._plan)

    @spark_border()
    def commit(self, end: dict[str, Any]) -> None:
        self._planning().commit(SourceOffset.parse(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
