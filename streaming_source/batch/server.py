"""Batch reads of a server's binlog, or of a daemon's relay log: the rows of (startingPosition, endingPosition].

In: the options and the plan; where the reading ends if that was `latest`, as it was at load(). Out: Spark's reader
object. Spark asks it once a DataFrame for its partitions, when that is first used: then the range is fetched into a
folder of its own (folders.py) by a replica that ends with it, and planned like a micro-batch of a stream, so that
rows and shapes are those of a stream. A daemon's log is planned where it is.

Refused: an end that lies before the start or is not reached yet, a range larger than relayMaxBytes, and what a stream
refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.batch.planned_reader import PlannedReader
from streaming_source.batch.pushdown import PushFilters
from streaming_source.rows.reader import read_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from replica.handshake.start.end import ServerEnd
    from streaming_source.batch.planning import PlannedRange
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter


class ServerRangeReader(PlannedReader):
    """Spark's reader of a range. `latest` is the end of the binlog at load()."""

    pushFilters = PushFilters()  # noqa: N815  (Spark's name)

    def __init__(self, options: SourceOptions, plan: ReadPlan, latest: ServerEnd, load: str) -> None:
        super().__init__(options, load)
        self._plan = plan
        self._latest = latest

    @property
    def plan(self) -> ReadPlan:
        return self._plan

    def take_filter(self, pushed: ChangeFilter) -> None:
        """Let tasks leave out what the filter leaves out."""
        self._plan = self._plan.filtered(pushed)

    def __repr__(self) -> str:
        return f"ServerRangeReader({self._plan.title})"

    def planned(self, options: SourceOptions, load: str) -> PlannedRange:
        from streaming_source.batch.planning import plan_range

        return plan_range(options, self._plan, self._latest, load)

    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        return read_changes(partition, self._plan)
