"""Progress of a snapshot: tables, rows, and the rate of the last half minute.

`ProgressMeter.of` returns a `SnapshotProgress`. The rate is measured between calls, so the first call reports 0.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.names import FirstNames
    from replica.snapshot.chunks.schedule import ReadingList
    from replica.snapshot.chunks.threads import ReadingThreads

RATE_S: Final = 30.0
"""Period in seconds over which the rate is measured."""


class SnapshotProgress(NamedTuple):
    """Progress of a snapshot. `rows` and `size`: read so far; `waits_for`: reason of a pause, '' while rows are
    read.
    """

    tables: int
    tables_done: int
    current: tuple[TableName, ...]
    rows: int
    size: int
    rows_a_second: float
    estimated_rows: int
    seconds_left: float | None
    waits_for: str


class ProgressMeter:
    """Progress meter of one snapshot, called by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: deque[tuple[float, int]] = deque()

    def of(self, reading: ReadingList, threads: ReadingThreads, first: FirstNames) -> SnapshotProgress:
        """Return the progress of a snapshot."""
        left, begun = reading.state()
        rows = threads.rows
        rate = self.rate(rows)
        rest = max(0, first.estimated_rows - rows)
        return SnapshotProgress(
            tables=first.delivered + reading.total,
            tables_done=first.delivered + reading.total - left - len({table.name for table in begun}),
            current=tuple(dict.fromkeys(table.name for table in begun if table.busy)),
            rows=rows,
            size=threads.size,
            rows_a_second=rate,
            estimated_rows=first.estimated_rows,
            seconds_left=rest / rate if rate else None,
            waits_for=threads.waits_for,
        )

    def rate(self, rows: int) -> float:
        """Record the number of rows read, and return the rows per second over the last RATE_S."""
        now = self._clock()
        self._told.append((now, rows))
        while now - self._told[0][0] > RATE_S:
            self._told.popleft()
        since, before = self._told[0]
        return (rows - before) / (now - since) if now > since else 0.0
