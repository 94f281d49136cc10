"""Planner of micro-batches over the relay log, in Spark's long-lived source process on the driver.

`ChangePlanner` takes offsets from Spark (none on a first start) and a relay log that an embedded replica or a daemon
writes. It returns the next offset, and the ranges of relay bytes between two offsets. Its invariants:

* An offset ends at the end of an event group, so no transaction is split over two micro-batches. The exception is a
  transaction that alone exceeds a limit, if `splitLargeTransactions` allows it. Then the offset has the number of its
  rows that are included (admission.py).
* Spark asks for the initial offset twice, logs neither answer, and asks again after a crash in batch 0. A start that
  moved in between would lose rows. So the first batch is empty, an **anchor**. Spark logs the anchor's end, which is
  the start position. `partitions` returns nothing for the anchor, whatever start Spark passes. Trigger.Once has no
  second batch, so the end of its first batch records where it began.
* Batches of a mirror end before a statement on one of its tables (statement_dml.py).
* The selection of a checkpoint is compared before its first offset is used (remembered_selection.py).
* Equal offsets have equal JSON text, and offsets never go backwards. Spark checks neither.
* Spark calls `partitions` cold after a restart. places.py finds the range, or fetches it again from the primary.
* While tables are read (startingPosition=initial), an offset has the progress of the read. Changes of rows that were
  not read yet are not delivered. Snapshot rows in a batch are the rows as of the batch's end (table_rows.py).
* Rows of an XA transaction belong to the batch with its XA COMMIT. Between XA PREPARE and XA COMMIT, `resume` of an
  offset is the place where the prepared groups begin. The relay log is kept from there.
* `commit` comes late or never. It only trims the relay log and acknowledges nothing.

Methods are in Spark's call order. One thread calls all of them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError, DataLossError, RelayFileRemovedError
from replica.protocol.gtid import GtidPosition, covers
from streaming_source.planning.admission import UNBOUNDED, Admission, Backlog, BatchEnd, OrderLimit
from streaming_source.planning.feed import ForgottenTransactions
from streaming_source.planning.tables.table_rows import has_snapshot_rows
from streaming_source.ranges.end import ReadingEnd
from streaming_source.ranges.places import LONG_POLL_S, KeptLog, OffsetPlace, RelayPlaces
from streaming_source.rows.partition import ChangePartition
from streaming_source.sinks.query_lag import NewestCommit

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.planning.definitions.remembered_selection import RememberedSelection
    from streaming_source.planning.definitions.statement_dml import StatementBorders, StatementDml
    from streaming_source.planning.definitions.table_history import TableHistory
    from streaming_source.planning.tables.table_rows import SnapshotRows
    from streaming_source.ranges.cutting import RangeCutter, SchemaStretch
    from streaming_source.ranges.places import Feed
# `BatchRanges.partitions` takes the two offsets of a batch, planned by this process or an earlier one, and returns
# partitions in stream order. It waits until the relay log has the range, as long as the replica keeps trying. Snapshot
# rows that are valid at a place which this server's log lacks are an error.


class BatchRanges:
    """Ranges of one query's batches. Only one thread calls it."""

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
            DataLossError: the server does not have the groups of the range, or has purged them.
            ConfigError: the inline bytes of the tasks exceed what Spark can send.
        """
        changes = not _same_place(start, end)
        if not changes and not has_snapshot_rows(start, end):
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
            if self._rows is None or not self._rows.request_rekeyed(start, cut):
                return cut

    def _of_tables(
        self, start: SourceOffset, end: SourceOffset, last: OffsetPlace, stretches: Sequence[SchemaStretch]
    ) -> list[ChangePartition]:
        if self._rows is None or not has_snapshot_rows(start, end):
            return []
        if last.exact:
            parts, lost = self._rows.parts(start, end, self._places.head_at(last), stretches[-1].catalog)
        else:
            why = (
                f"the batch up to {end.position} has snapshot rows of that position. This server has the transactions "
                "of its domains in another order, so its tables never had this state."
            )
            parts, lost = [], self._rows.lost(start, end, why)
            if not lost:
                raise DataLossError(
                    why, hint="Connect to the server that the batch was planned on, or start with a new checkpoint."
                )
        of_lost = [ChangePartition((), tuple(lost.items()))] if lost else []
        return self._cutter.of_tables(parts) + of_lost


def _same_place(start: SourceOffset, end: SourceOffset) -> bool:
    """Return True if no group lies between two offsets.

    If sequence numbers went back, one position may name two places.
    """
    if (start.position, start.part) != (end.position, end.part):
        return False
    # The start may be the beginning of a server's oldest file. Then it does not record what follows.
    twice = end.highest and start.primary is not None and start.server_id in (None, end.server_id)
    return not twice or start.primary == end.primary


# Limit of how often a run that ends (Trigger.AvailableNow) extends its end, and for which tables. Rows of some tables
# can be read only as of a later position than the run's end, because a statement changed the tables or gave their names
# to others. At the later position the run may meet more such statements. On a server that swaps tables all day the run
# would never end, so the next run reads the rest.

MOST: Final = 3
"""Most extensions of a run for one table. One is enough if no other such statement follows."""


class Extensions:
    def __init__(self) -> None:
        self._times: Counter[TableName] = Counter()

    def allow(self, blocked_tables: Collection[TableName], left: Collection[TableName]) -> bool:
        """Return True if the run may be extended, and count the extension.

        Args:
            blocked_tables: the tables that wait for a later position.
            left: all tables that are not delivered completely. If some of these tables do not wait, the run is
                extended, because they may need a later position.
        """
        if set(left) <= set(blocked_tables) and all(self._times[name] >= MOST for name in blocked_tables):
            return False
        self._times.update(blocked_tables)
        return True


GATHER_S: Final = 0.1
"""Seconds in which new groups gather before they are counted, while a batch waits for rows. Each count costs some 2
ms.
"""

HEAD_POLL_S: Final = 0.02
"""Seconds between two reads of the head while a batch fills. A read costs some microseconds."""

LONGEST_POLL_S: Final = 0.5
"""Longest wait for new groups in seconds. Spark asks again at once, and each call costs some milliseconds of CPU time
on both sides. But another source of the same query, or a program that stops the query, waits for the answer.
"""
SILENCE_A_POLL: Final = 40
"""Silence divided by the wait: during a long silence, waits grow from LONG_POLL_S to LONGEST_POLL_S in proportion."""
MOST_REOPENED: Final = 3
"""Most lookups of the log in a row because one of its files is missing."""
_log = logging.getLogger(__name__)


class ChangePlanner:
    """Planner of one query.

    Args:
        feed: the replica.
        cutter: makes partitions from ranges.
        admission: the limits of a batch.
        tables: the definitions along the stream.
        selection: the selection of the checkpoint.
        statements: finds changes without rows.
        order: limits a batch if sequence numbers go back.
        borders: end batches before statements. With None, statements and rows mix in a batch.
        rows: the snapshot rows; None if the tables are not read.
        shared: the limits of changes in batches with snapshot rows.
    """

    def __init__(
        self,
        feed: Feed,
        cutter: RangeCutter,
        admission: Admission,
        tables: TableHistory,
        selection: RememberedSelection,
        statements: StatementDml,
        order: OrderLimit | None = None,
        *,
        borders: StatementBorders | None = None,
        rows: SnapshotRows | None = None,
        shared: Admission | None = None,
    ) -> None:
        self._feed = feed
        self._admission = admission
        self._tables = tables
        self._selection = selection
        self._statements = statements
        self._order = order or OrderLimit(strict=False)
        self._borders = borders
        self._rows = rows
        self._shared = shared or admission
        self._kept = KeptLog(feed)
        if rows is not None:
            self._kept.claim(rows.needed_from)
        self._places = RelayPlaces(feed, self._kept)
        self._ranges = BatchRanges(feed, self._places, cutter, tables, self._order, rows)
        self._forgotten = ForgottenTransactions(feed)
        self._backlog: Backlog | None = None
        self._initial: SourceOffset | None = None
        self._anchor_due = False
        self._target: ReadingEnd | None = None
        self._extensions = Extensions()
        self._planned: RelayHead | None = None
        self._news_s = time.monotonic()
        self._commits = NewestCommit()
        self._reopened = 0

    def prepare_available_now(self) -> None:
        """End at the primary's current position, as Trigger.AvailableNow asks."""
        self._target, self._extensions = self._end_now(), Extensions()

    def _end_now(self) -> ReadingEnd:
        return ReadingEnd(self._feed, self._places, self._feed.server_end())

    def initial_offset(self) -> SourceOffset:
        """Return the start of a query without a checkpoint.

        It is the same at every call, although the primary continues.
        """
        if self._initial is None:
            start = self._tables.starting(self._feed.starting_offset())
            self._initial = self._selection.stored_in(self._rows.starting(start) if self._rows else start)
            self._anchor_due = True
        return self._initial

    def latest_offset(self, start: SourceOffset, *, bounded: bool) -> SourceOffset:
        """Return the end of the batch after `start`.

        The result is `start` if nothing new arrives within 0.25 s, or within 0.5 s after a long silence. While tables
        are left to read, the call waits for their rows, because an answer without progress means that all is processed.
        Under Trigger.AvailableNow the call waits as long as needed, because an answer without progress ends the query.
        The call gives up only if all tables that are left are altered and swapped again and again. Under Trigger.Once
        (`bounded` is False) it waits for the one batch up to the primary's position at the call.
        """
        self._selection.compare(start, start)
        self._refuse_without_server(start)
        target = self._target if bounded else self._end_now()
        first = self._anchor_due and start == self._initial
        self._anchor_due = False
        if first and bounded:
            self._admission.planned()
            return start
        logged, start = start, self._revised(start)
        begins = first or start is not logged
        while True:
            epoch = self._feed.epoch
            end, revised = self._end_of(start, target, bounded=bounded)
            if self._feed.epoch != epoch or revised is not start:
                start, begins = revised, begins or revised is not start
                continue  # the result may be from the previous log
            self._reopened = 0
            if end is not None:
                self._admission.planned()
                if begins:
                    selection = None if start is logged else start.selection
                    end = replace(end, begin=replace(start.place, selection=selection))
                return self._sealed(end, start)
            at_end = target is None or target.is_done(start)
            if at_end and not self._is_reading(start):
                return logged
            if target is None or not at_end or not bounded or self._rows is None:
                continue
            if deferred := self._rows.blocked_tables:
                if not self._extensions.allow(deferred, self._rows.left(start)):
                    return logged
                target = self._target = self._end_now()  # snapshot rows as of a later position would never be delivered

    def _end_of(
        self, start: SourceOffset, target: ReadingEnd | None, *, bounded: bool
    ) -> tuple[SourceOffset | None, SourceOffset]:
        """Return the end of the batch after `start`, or None if nothing is new, and the start of the batch.

        The start differs from `start` if a re-snapshot of tables has to begin again with their first rows.
        """
        epoch = self._feed.epoch
        try:
            end = self._next_end(start) if bounded else self._end_of_all(start, target)
            revised = self._rekeyed(start, end)
            if self._feed.epoch == epoch and revised is start:
                end = self._with_rows(start, end, bounded=bounded)
        except RelayFileRemovedError as error:
            self._restart_after(error)
            return None, start
        return end, revised

    def _restart_after(self, error: RelayFileRemovedError) -> None:
        """Continue from the offset as after a restart, because a relay file is missing.

        Raises:
            RelayFileRemovedError: this happened repeatedly, so another program removes files.
        """
        self._reopened += 1
        if self._reopened > MOST_REOPENED:
            raise error
        _log.warning("%s The query looks up its place again, and fetches the missing part.", error.message)
        self._feed.restart_after(error)

    def _revised(self, start: SourceOffset) -> SourceOffset:
        if self._rows is None:
            return start
        return self._as_read(self._rows.revised(start, self._selection.to_read(start)))

    def _as_read(self, start: SourceOffset) -> SourceOffset:
        """Return the start of a batch with the definitions of tables whose re-snapshot begins there."""
        names = () if self._rows is None else self._rows.requested
        return self._tables.read_anew(start, names) if names else start

    def _sealed(self, end: SourceOffset, start: SourceOffset) -> SourceOffset:
        """Return an offset for Spark to log, with the data that the next start compares."""
        return self._selection.stored_in(end if self._rows is None else self._rows.marked(end, start))

    def _refuse_without_server(self, offset: SourceOffset) -> None:
        if self._rows is None and offset.snapshot is not None and not offset.snapshot.finished:
            raise ConfigError(
                "the checkpoint belongs to a query that is still reading its tables, and no server is named to read "
                "them from.",
                hint="Set host and user beside relayDir, as when the query was started.",
            )

    def _is_reading(self, start: SourceOffset) -> bool:
        return self._rows is not None and self._rows.is_reading(start)

    def _rekeyed(self, start: SourceOffset, end: SourceOffset | None) -> SourceOffset:
        """Return another start if the keys of tables changed in this batch while they are read."""
        if self._rows is None or not self._is_reading(start):
            return start
        begin = self._places.of_start(start).scan_from
        end_at = begin if end is None else self._places.of_start(end).reached
        revised = self._rows.rekeyed(start, begin, end_at)
        return start if revised is start else self._as_read(revised)

    def _with_rows(self, start: SourceOffset, end: SourceOffset | None, *, bounded: bool) -> SourceOffset | None:
        """Return the end of a batch with snapshot rows as of this end."""
        if self._rows is None or not self._is_reading(start):
            return end
        if end is None and bounded:
            self._rows.gather(start, ends=self._target is not None)
        place = self._places.of_start(start if end is None else end)
        if not place.exact:
            return end  # in the order of this log, the tables never had the state of this position
        return self._rows.advance(start, end, self._places.head_at(place), bounded=bounded)

    def _next_end(self, start: SourceOffset) -> SourceOffset | None:
        """Return the next end within the limits.

        The result is None if no groups have arrived, if there are fewer rows than a batch waits for, or if the target
        is reached.
        """
        place = self._places.of_start(start)  # always, because the server may be another one
        if self._target is not None and self._target.is_done(start):
            return None
        reading = self._is_reading(start)
        admission = self._shared if reading else self._admission
        wait = self._target is None and start.part is None and admission.waits and not self._feed.full and not reading
        wait = wait and not (self._borders is not None and self._borders.ended)  # rows follow the statement
        seen = admission.examined_to(place) if wait else place.reached
        ready = reading and self._rows is not None and self._rows.is_ready(start)
        news = self._feed.wait_beyond(seen, 0.0 if ready else self._poll_s(reading=reading))
        self._planned = self._planned or self._places.head_at(place)
        if not news:
            self._trim(start)  # without new rows Spark calls no commit, and a full relay log would stay full
            self._places.check_room(place)
            return None
        self._news_s = time.monotonic()
        if seen > place.reached:
            time.sleep(GATHER_S)
        if self._target is not None and not reading:
            self._fill(place, self._target)
        goal = self._order.reach(self._feed.log, place.reached, self._goal(place))
        end = admission.end(self._feed.log, start, place, goal, wait=wait)
        if end is None:
            return None
        same = end.part is None and end.head.position == start.position
        if same and self._feed.log.is_empty(place.reached, end.head.location):
            # A new relay file without a group: the same place under another name.
            self._places.remember(start, OffsetPlace.exactly(goal, place.prepared) if place.exact else place)
            return None
        return self._offset(start, place, end)

    def _poll_s(self, *, reading: bool) -> float:
        """Return the seconds to wait for new groups.

        Finished snapshot rows do not end the wait, so the wait is short during a snapshot.
        """
        if reading:
            return LONG_POLL_S
        silence = time.monotonic() - self._news_s
        return min(LONGEST_POLL_S, max(LONG_POLL_S, silence / SILENCE_A_POLL))

    def _fill(self, place: OffsetPlace, target: ReadingEnd) -> None:
        """Wait while the log grows and has less than a full batch after `place`, because a sink pays for each batch.

        The method reads only the head: a wait beyond a place would report to the feed that everything before the place
        was read.
        """
        while not target.is_reached:
            head = self._feed.head().location
            if self._bytes_between(place.reached, head) >= self._admission.fills or not self._grows(head):
                return

    def _grows(self, head: RelayLocation) -> bool:
        """Return True if the log grows beyond its head within LONG_POLL_S."""
        deadline = time.monotonic() + LONG_POLL_S
        while self._feed.head().location == head:
            if time.monotonic() > deadline:
                return False
            time.sleep(HEAD_POLL_S)
        return True

    def _bytes_between(self, start: RelayLocation, end: RelayLocation) -> int:
        if self._backlog is None:  # a feed that has started keeps its folder
            self._backlog = Backlog(self._feed.log.directory)
        return self._backlog.bytes(start, end)

    def _goal(self, place: OffsetPlace) -> RelayLocation:
        """Return the place that a batch may reach: the head, or the target if that is earlier."""
        return self._feed.head().location if self._target is None else self._target.goal(place)

    def _end_of_all(self, start: SourceOffset, target: ReadingEnd | None) -> SourceOffset | None:
        """Wait for the target and return its offset, whatever the limits."""
        place = self._places.of_start(start)  # always, as in `_next_end`
        if target is None or target.is_done(start):
            return None
        goal = self._order.reach(self._feed.log, place.reached, target.arrived(place))
        if place.reached >= goal:
            return None
        return self._offset(start, place, BatchEnd(self._feed.log.cut(place.reached, goal, UNBOUNDED)))

    def _offset(self, start: SourceOffset, place: OffsetPlace, end: BatchEnd) -> SourceOffset:
        self._planned = end.reached
        log = self._feed.log
        if end.part is not None:
            group = log.cut(place.reached, self._feed.head().location, 1)
            self._statements.admit_part(log, start, place, group.location)
            return replace(start.place, part=end.part)
        bordered = end.head if self._borders is None else self._borders.admit(log, place.reached, end.head)
        head, schema = self._tables.admit(log, start, place, bordered)
        admitted = self._statements.admit(log, start, place, head)
        if admitted != head:
            head, schema = self._tables.admit(log, start, place, admitted)
        snapshot = None
        if self._rows is not None:
            stopped, snapshot = self._rows.stop_at(start, place.scan_from, head)
            if stopped != head:
                head, schema = self._tables.admit(log, start, place, stopped)
        self._planned = head
        prepared = self._places.prepared_at(head.location, place)
        offset = replace(self._places.offset_at(head, prepared), schema=schema, snapshot=snapshot)
        reached = OffsetPlace.exactly(head.location, prepared)
        self._places.remember(offset, reached)
        self._admission.taken(self._feed.log, reached)
        if start.part is not None and not covers(offset.position, GtidPosition((start.part.gtid,))):
            return replace(offset, part=start.part)  # groups of other domains come first on this server
        return offset

    def report(self) -> dict[str, Any] | None:
        """Return the replica's position and the query's lag, which Spark shows as the source's latestOffset."""
        if not self._feed.started:
            return None
        head, planned = self._feed.head(), self._planned
        report = self._places.offset_at(head).json()
        if planned is not None:
            report["bytesBehind"] = self._bytes_between(planned.location, head.location)
            if planned.timestamp:  # 0 before the first group
                now = time.time()
                reached = self._commits.take([planned.timestamp], now) or now
                report["secondsBehind"] = max(0, int(min(head.timestamp, now) - reached))
        report |= self._admission.waiting | self._selection.report()
        if self._feed.losses:
            report["dataLoss"] = self._feed.losses.json()
        if self._rows is not None:
            report |= self._rows.report()
        if self._statements.count:
            report["statementDml"] = self._statements.count
        if self._feed.down_s:
            report["daemonDownSeconds"] = round(self._feed.down_s)
        return report

    def partitions(self, start: SourceOffset, end: SourceOffset) -> list[ChangePartition]:
        """Return the ranges of (start, end].

        The call waits until the relay log has the ranges, as long as the replica keeps trying.
        """
        self._anchor_due &= not end.anchor  # Spark logged the anchor before it asks for its partitions
        start = end if end.anchor else end.begin or start
        self._selection.compare(end, start)
        self._refuse_without_server(end)
        while True:
            try:
                return self._ranges.partitions(start, end)
            except RelayFileRemovedError as error:
                self._restart_after(error)

    def whole_range(self, start: SourceOffset, end: SourceOffset) -> list[ChangePartition]:
        """Return the ranges of a batch read, for which no offset was planned.

        Everything that a stream refuses is refused.
        """
        first = self._places.of_start(start)
        last = self._places.of_end(end.place, first)
        self._statements.admit_all(self._feed.log, start, first, last, end.position)
        return self.partitions(start, end)

    def commit(self, end: SourceOffset) -> None:
        """Release whole relay files before `end`, because Spark will not ask for anything up to it again."""
        self._tables.release(end)
        if self._rows is not None:
            self._rows.release(end)
        if self._places.known(end) is not None:
            with contextlib.suppress(RelayFileRemovedError):  # the next batch misses the file too, and fetches it
                self._trim(end)

    def _trim(self, offset: SourceOffset) -> None:
        place = self._places.of_start(offset)
        if place.holds_files and (forgotten := self._forgotten.among(place.prepared, offset.position)):
            self._places.forget(forgotten)
            place = self._places.of_start(offset)
        self._kept.release(place.keep_from)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._feed.close()
