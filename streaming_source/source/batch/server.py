"""Batch reads of a server's binlog, or of a daemon's relay log: the rows of (startingPosition, endingPosition].

`ServerRangeReader` is Spark's reader. It takes the options, the plan, and the end of the binlog at load(), for
`latest`. When a DataFrame is first used, Spark asks it once for the partitions. Then a replica fetches the range into a
private folder (folders.py). The range is planned like a micro-batch, so that its rows equal the rows of a stream. A
range of a daemon's log is planned without a copy.

Errors: an end that lies before the start or is not reached yet, a range larger than relayMaxBytes, and everything that
a stream refuses.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from replica.handshake.start.start import ServerEnd, server_end
from replica.protocol.gtid import GtidPosition
from streaming_source.attached.folder import attached_directory
from streaming_source.rows.reader import read_changes
from streaming_source.source.batch.planned_reader import PlannedReader
from streaming_source.source.batch.reader import PushFilters

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter
    from streaming_source.source.batch.planning import PlannedRange


class ServerRangeReader(PlannedReader):
    """Spark's reader of a range.

    Attributes:
        latest: the end of the binlog at load().
    """

    pushFilters = PushFilters()  # noqa: N815  (Spark's name)

    def __init__(self, options: SourceOptions, plan: ReadPlan, latest: ServerEnd, load: str) -> None:
        super().__init__(options, load)
        self._plan = plan
        self._latest = latest

    @property
    def plan(self) -> ReadPlan:
        return self._plan

    def take_filter(self, pushed: ChangeFilter) -> None:
        """Let tasks drop the rows that do not pass the filter."""
        self._plan = self._plan.filtered(pushed)

    def __repr__(self) -> str:
        return f"ServerRangeReader({self._plan.title})"

    def planned(self, options: SourceOptions, load: str) -> PlannedRange:
        from streaming_source.source.batch.planning import plan_range

        return plan_range(options, self._plan, self._latest, load)

    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        return read_changes(partition, self._plan)


# This is a separate module because each `load()` calls it, also for streams, in a process that imports as little as
# possible.


def end_at_load(options: SourceOptions) -> ServerEnd:
    """Return the current end of the server's binlog, or of the daemon's log."""
    directory = attached_directory(options)
    if directory is None:
        return asyncio.run(server_end(options.connection))
    from replica.relay_log.log import RelayLog
    from streaming_source.ranges.end import end_of_log

    log = RelayLog(directory)
    head = log.head()
    return ServerEnd(GtidPosition()) if head is None else end_of_log(log, head)
