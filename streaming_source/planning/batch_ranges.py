"""The partitions of a micro-batch: the changes between its two offsets, and then snapshot rows.

`BatchRanges.partitions` takes the two offsets of a batch, planned by this process or an earlier one, and returns
partitions in stream order. It waits until the relay log has the range, as long as the replica keeps trying. Snapshot
rows as of a place that this server's log does not have are an error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replica.errors import DataLossError
from streaming_source.planning.tables.table_rows import brings_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.planning.definitions.table_history import TableHistory
    from streaming_source.planning.order import OrderLimit
    from streaming_source.planning.tables.table_rows import SnapshotRows
    from streaming_source.ranges.cutting import RangeCutter, SchemaStretch
    from streaming_source.ranges.places import Feed, OffsetPlace, RelayPlaces
    from streaming_source.rows.partition import ChangePartition


class BatchRanges:
    """The ranges of one query's batches. One thread calls it."""

    def __init__(
        self,
        feed: Feed,
        places: RelayPlaces,
        cutter: RangeCutter,
        tables: TableHistory,
        order: OrderLimit,
        rows: SnapshotRows | None,
    ) -> None:
        self._feed = feed
        self._places = places
        self._cutter = cutter
        self._tables = tables
        self._order = order
        self._rows = rows

    def partitions(self, start: SourceOffset, end: SourceOffset) -> list[ChangePartition]:
        """Return the ranges of (start, end].

        Raises:
            DataLossError: the server does not have them, or not any more.
            ConfigError: the inline bytes of the tasks exceed what Spark can send.
        """
        changes = not _same_place(start, end)
        if not changes and not brings_rows(start, end):
            return []
        reached = end.place if start.part == end.part else replace(end.place, position=end.through, primary=None)
        while True:
            epoch = self._feed.epoch
            first = self._places.of_start(start)
            last = self._places.of_end(reached, first)
            self._order.check(self._feed.log, first.reached, last.reached)
            stretches = self._tables.stretches(self._feed.log, start, first, last.reached)
            ranges = self._of_changes(start, end, (first, last), stretches) if changes else []
            ranges += self._of_tables(start, end, last, stretches)
            if self._feed.epoch == epoch:
                return self._cutter.on_board(ranges)

    def _of_changes(
        self,
        start: SourceOffset,
        end: SourceOffset,
        places: tuple[OffsetPlace, OffsetPlace],
        stretches: Sequence[SchemaStretch],
    ) -> list[ChangePartition]:
        while True:
            delivered = None if self._rows is None else self._rows.delivered(start)
            log = self._feed.log
            cut = self._cutter.partitions(log, *places, start, end, stretches=stretches, delivered=delivered)
            if self._rows is None or not self._rows.asks_again(start, cut):
                return cut

    def _of_tables(
        self, start: SourceOffset, end: SourceOffset, last: OffsetPlace, stretches: Sequence[SchemaStretch]
    ) -> list[ChangePartition]:
        if self._rows is None or not brings_rows(start, end):
            return []
        if not last.exact:
            raise DataLossError(
                f"the batch up to {end.position} has snapshot rows of that position. This server has the transactions "
                "of its domains in another order, so its tables never had this state.",
                hint="Connect to the server that the batch was planned on, or start with a new checkpoint.",
            )
        parts = self._rows.parts(start, end, self._places.head_at(last), stretches[-1].catalog)
        return self._cutter.of_tables(parts)


def _same_place(start: SourceOffset, end: SourceOffset) -> bool:
    """Return True if nothing lies between. If sequence numbers went back, one position may name two places."""
    if (start.position, start.part) != (end.position, end.part):
        return False
    # The start may be the beginning of a server's oldest file. Then it does not record what follows.
    twice = end.highest and start.primary is not None and start.server_id in (None, end.server_id)
    return not twice or start.primary == end.primary
