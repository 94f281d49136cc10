"""Plans micro-batches over the relay log, in Spark's long-lived source process on the driver.

In: offsets from Spark (or none, on a first start) and a relay log that an embedded replica beside us, or a daemon,
writes. Out: the next offset, and the ranges of relay bytes between two offsets. What it holds to:

* An offset ends where an event group ends, so a transaction is never split over two micro-batches.
* Spark asks for the initial offset twice, logs neither answer, and asks again after a crash in batch 0. A start that
  moved in between would lose rows. So the first batch is empty on purpose, an **anchor**: its end, which Spark does
  log, is the start position, and `partitions` gives nothing for it whatever start Spark names.
* The same offset is the same JSON text, and offsets never go backwards: Spark checks neither.
* `partitions` is called cold after a restart; places.py finds the range, or fetches it again from the primary.
* Rows of an XA transaction belong to the batch with its XA COMMIT. An offset between XA PREPARE and XA COMMIT says in
  `resume` where the prepared groups begin; the relay log is kept from there.
* `commit` comes late or never. It only trims the relay log; nothing is acknowledged by it.

Method order is Spark's call order. All are called by one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming_source.attached import attached_directory
from streaming_source.attached_feed import AttachedFeed
from streaming_source.backlog import Backlog
from streaming_source.cutting import RangeCutter
from streaming_source.feed import ReplicaFeed
from streaming_source.forgotten import ForgottenTransactions
from streaming_source.places import LONG_POLL_S, Place, RelayPlaces, covers
from streaming_source.transport import tasks_are_local

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay.location import RelayHead
    from streaming_source.offset import SourceOffset
    from streaming_source.options import SourceOptions
    from streaming_source.partition import ChangePartition
    from streaming_source.places import Feed
    from streaming_source.resolver import SelectedTables


class ChangePlanner:
    """`feed` is the replica, `cutter` knows the limits of a batch and how ranges become partitions."""

    def __init__(self, feed: Feed, cutter: RangeCutter) -> None:
        self._feed = feed
        self._cutter = cutter
        self._places = RelayPlaces(feed)
        self._forgotten = ForgottenTransactions(feed)
        self._backlog: Backlog | None = None
        self._initial: SourceOffset | None = None
        self._anchor_due = False
        self._target: GtidPosition | None = None
        self._planned: RelayHead | None = None

    def prepare_available_now(self) -> None:
        """Trigger.AvailableNow: read up to what the primary has committed by now, and no further."""
        self._target = self._feed.server_position()

    def initial_offset(self) -> SourceOffset:
        """The start of a query without a checkpoint; the same at every call, although the primary moves on."""
        if self._initial is None:
            self._initial = self._feed.starting_offset()
            self._anchor_due = True
        return self._initial

    def latest_offset(self, start: SourceOffset, *, bounded: bool) -> SourceOffset:
        """Where the batch after `start` ends; `start` itself if there is nothing new after a quarter of a second.

        Under Trigger.AvailableNow it waits as long as it takes: an answer without progress would end the query.
        """
        if self._anchor_due and start == self._initial:
            self._anchor_due = False
            return start
        while True:
            epoch = self._feed.epoch
            end = self._next_end(start, bounded=bounded)
            if self._feed.epoch != epoch:
                continue  # what was looked up may be the log from before
            if end is not None:
                return end
            if self._target is None or covers(start.position, self._target):
                return start

    def _next_end(self, start: SourceOffset, *, bounded: bool) -> SourceOffset | None:
        place = self._places.of_start(start)
        if not self._feed.wait_beyond(place.reached, LONG_POLL_S):
            self._trim(start)  # an idle table sends no commit, and a full relay log would stay full
            self._places.check_room(place)
            return None
        head = self._feed.head()
        goal = head.location
        if self._target is not None:
            # Looked up after the head: while it is not in the log, the head is before it.
            target = self._feed.log.locate(self._target)
            goal = goal if target is None else min(goal, target)
        cut = self._cutter.cut(self._feed.log, place, goal, bounded=bounded)
        if cut is None or cut.position == start.position:
            # A new relay file without a group in it: the same place under another name.
            self._places.remember(start, Place.exactly(goal, place.prepared) if place.exact else place)
            return None
        prepared = self._places.prepared_at(cut.location, place)
        self._planned = cut
        end = self._places.offset_at(cut, prepared)
        self._places.remember(end, Place.exactly(cut.location, prepared))
        return end

    def report(self) -> dict[str, Any] | None:
        """How far the replica is, and how far behind it the query: Spark shows it as the source's latestOffset."""
        if not self._feed.started:
            return None
        head, planned = self._feed.head(), self._planned
        report = self._places.offset_at(head).json()
        if planned is not None:
            if self._backlog is None:  # a feed that has started stays in its folder
                self._backlog = Backlog(self._feed.log.directory)
            report["bytesBehind"] = self._backlog.bytes(planned.location, head.location)
            report["secondsBehind"] = max(0, head.timestamp - planned.timestamp)
        if self._feed.down_s:
            report["daemonDownSeconds"] = round(self._feed.down_s)
        return report

    def partitions(self, start: SourceOffset, end: SourceOffset) -> list[ChangePartition]:
        """The ranges of (start, end]; waits until the relay log has them, as long as the replica keeps trying."""
        if end.anchor or start.position == end.position:
            return []
        while True:
            epoch = self._feed.epoch
            first = self._places.of_start(start)
            last = self._places.of_end(end, first)
            ranges = self._cutter.partitions(self._feed.log, first, last, start, end)
            if self._feed.epoch == epoch:
                return ranges

    def commit(self, end: SourceOffset) -> None:
        """Spark will not ask for anything up to `end` again: whole relay files before it can go."""
        if self._places.known(end) is not None:
            self._trim(end)

    def _trim(self, offset: SourceOffset) -> None:
        place = self._places.of_start(offset)
        if place.holds_files and (gone := self._forgotten.among(place.prepared, offset.position)):
            self._places.forget(gone)
            place = self._places.of_start(offset)
        self._feed.release(place.keep_from)

    def close(self) -> None:
        self._feed.close()


def open_planner(options: SourceOptions, tables: SelectedTables) -> ChangePlanner:
    """The planner of a query in this process. Nothing connects before its first call."""
    cutter = RangeCutter(
        tables,
        max_bytes=options.max_bytes_per_trigger,
        max_rows=options.max_rows_per_trigger,
        skip_unprepared=options.skip_unprepared_xa,
        inline=options.transport == "inline" or (options.transport == "auto" and not tasks_are_local()),
    )
    directory = attached_directory(options)
    return ChangePlanner(ReplicaFeed(options) if directory is None else AttachedFeed(options, directory), cutter)
