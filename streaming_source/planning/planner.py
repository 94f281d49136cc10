"""The planner of micro-batches over the relay log, in Spark's long-lived source process on the driver.

In: offsets from Spark (or none, on a first start) and a relay log that an embedded replica beside us, or a daemon,
writes. Out: the next offset, and the ranges of relay bytes between two offsets. What it holds to:

* An offset ends where an event group ends, so a transaction is not split over two micro-batches; but where one alone is
  over a limit and `splitLargeTransactions` allows it, the offset says how many of its rows are in (admission.py).
* Spark asks for the initial offset twice, logs neither answer, and asks again after a crash in batch 0. A start that
  moved in between would lose rows. So the first batch is empty on purpose, an **anchor**: its end, which Spark does
  log, is the start position, and `partitions` gives nothing for it whatever start Spark names. Trigger.Once has no
  second batch: the end of its first one says itself where it began.
* Batches of a mirror end before a statement on one of its tables (statement_borders.py).
* What a checkpoint was written for is compared before its first offset is used (remembered_selection.py).
* The same offset is the same JSON text, and offsets never go backwards: Spark checks neither.
* `partitions` is called cold after a restart; places.py finds the range, or fetches it again from the primary.
* While tables are read (startingPosition=initial), an offset says how far; changes of rows that were not read yet do
  not count, and rows that are read hold at the batch's end (table_rows.py).
* Rows of an XA transaction belong to the batch with its XA COMMIT. An offset between XA PREPARE and XA COMMIT says in
  `resume` where the prepared groups begin; the relay log is kept from there.
* `commit` comes late or never. It only trims the relay log; nothing is acknowledged by it.

Method order is Spark's call order. All are called by one thread.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError, RelayFileRemovedError
from replica.protocol.gtid import GtidPosition, covers
from streaming_source.planning.admission import UNBOUNDED, Admission, Backlog, BatchEnd
from streaming_source.planning.batch_ranges import BatchRanges
from streaming_source.planning.forgotten import ForgottenTransactions
from streaming_source.planning.order import OrderLimit
from streaming_source.queries.commit_times import NewestCommit
from streaming_source.ranges.end import ReadingEnd
from streaming_source.ranges.kept_log import KeptLog
from streaming_source.ranges.places import LONG_POLL_S, OffsetPlace, RelayPlaces

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.planning.definitions.remembered_selection import RememberedSelection
    from streaming_source.planning.definitions.statement_borders import StatementBorders
    from streaming_source.planning.definitions.statement_dml import StatementDml
    from streaming_source.planning.definitions.table_history import TableHistory
    from streaming_source.planning.tables.table_rows import SnapshotRows
    from streaming_source.ranges.cutting import RangeCutter
    from streaming_source.ranges.places import Feed
    from streaming_source.rows.partition import ChangePartition


# Count how often a run that ends by itself (Trigger.AvailableNow) goes on behind its end, and for which tables.
#
# In: the tables whose rows can only be had as of a later position than the run's end, because a statement up to there
# or behind it changed them or gave their names to others. Out: whether the run goes on to a later one. There it may
# meet more such statements: on a server that swaps tables all day it would never end. What is left is read by the
# next run.

MOST: Final = 3
"""The number of times that a run goes on for one table. Once is enough where nothing more happens to it."""


class Extensions:
    """One a run."""

    def __init__(self) -> None:
        self._times: Counter[TableName] = Counter()

    def allow(self, held_back: Collection[TableName], left: Collection[TableName]) -> bool:
        """Tell whether the run goes on, and count it.

        Args:
            held_back: the tables that wait for a later position.
            left: all tables that are not delivered as a whole. While others than those that wait are among them, it
                goes on: what they wait for may lie behind the end.
        """
        if set(left) <= set(held_back) and all(self._times[name] >= MOST for name in held_back):
            return False
        self._times.update(held_back)
        return True


GATHER_S: Final = 0.1
"""How long news gather before they are counted, where a batch waits for rows: each look costs some 2 ms."""

HEAD_POLL_S: Final = 0.02
"""How often the head is looked at while a batch fills: a look costs some microseconds."""

LONGEST_POLL_S: Final = 0.5
"""The longest wait for news. Spark asks again at once, and each question costs it and us some milliseconds of CPU time;
but another source of the same query, and a program that stops it, wait for the answer."""
SILENCE_A_POLL: Final = 40
"""A log that was silent for so many times LONG_POLL_S is waited for longer: a part of its silence."""
MOST_REOPENED: Final = 3
"""How often in a row the log is looked up again because a file of it is not there."""

_log = logging.getLogger(__name__)


class ChangePlanner:
    """The planner of one query. `feed` is the replica, `admission` knows the limits of a batch, `cutter` how ranges
    become partitions.

    `tables` knows what the selected tables look like where, `selection` which the checkpoint was written for,
    `statements` which changes of them have no rows, `order` how far sequence numbers let a batch go; `borders` end
    batches before statements, None: statements stand among rows. `rows` are those of the tables themselves, None for
    none; `shared` is what changes may take of the limits beside them.
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
        """Read up to what the primary has committed by now, and no further, as Trigger.AvailableNow asks."""
        self._target, self._extensions = self._end_now(), Extensions()

    def _end_now(self) -> ReadingEnd:
        return ReadingEnd(self._feed, self._places, self._feed.server_end())

    def initial_offset(self) -> SourceOffset:
        """Return the start of a query without a checkpoint; the same at every call, although the primary moves on."""
        if self._initial is None:
            start = self._tables.starting(self._feed.starting_offset())
            self._initial = self._selection.put_into(self._rows.starting(start) if self._rows else start)
            self._anchor_due = True
        return self._initial

    def latest_offset(self, start: SourceOffset, *, bounded: bool) -> SourceOffset:
        """Return where the batch after `start` ends; `start` itself if there is nothing new after a quarter of a
        second, or after half a one where nothing was new for long.

        While tables are left to read it waits for their rows: an answer without progress says that all is processed.
        Under Trigger.AvailableNow it waits as long as it takes: an answer without progress would end the query, as it
        does where nothing but tables is left that are altered and swapped time and again. So it waits under
        Trigger.Once, `bounded` False, whose one batch reaches to what the primary has committed by now.
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
                continue  # what was looked up may be the log from before
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
            if held := self._rows.held_back:
                if not self._extensions.allow(held, self._rows.left(start)):
                    return logged
                target = self._target = self._end_now()  # rows that hold behind the old one only would never come

    def _end_of(
        self, start: SourceOffset, target: ReadingEnd | None, *, bounded: bool
    ) -> tuple[SourceOffset | None, SourceOffset]:
        """Return the end of the batch behind `start`, None where nothing is new, and its start: another one where
        tables are to be read from their first rows on.
        """
        epoch = self._feed.epoch
        try:
            end = self._next_end(start) if bounded else self._end_of_all(start, target)
            revised = self._rekeyed(start, end)
            if self._feed.epoch == epoch and revised is start:
                end = self._with_rows(start, end, bounded=bounded)
        except RelayFileRemovedError as error:
            self._begin_again(error)
            return None, start
        return end, revised

    def _begin_again(self, error: RelayFileRemovedError) -> None:
        """Go on from the offset as a restart would, because a relay file is not there that is needed.

        Raises:
            RelayFileRemovedError: it was removed again and again, so that someone else removes files.
        """
        self._reopened += 1
        if self._reopened > MOST_REOPENED:
            raise error
        _log.warning("%s The query looks up its place again, and fetches what is not there.", error.message)
        self._feed.begin_again(error)

    def _revised(self, start: SourceOffset) -> SourceOffset:
        if self._rows is None:
            return start
        return self._as_read(self._rows.revised(start, self._selection.to_read(start)))

    def _as_read(self, start: SourceOffset) -> SourceOffset:
        """Return the start of a batch with the definitions of tables whose rows are read from there on."""
        names = () if self._rows is None else self._rows.asked
        return self._tables.read_anew(start, names) if names else start

    def _sealed(self, end: SourceOffset, start: SourceOffset) -> SourceOffset:
        """Return an offset as Spark is to log it, with what the next start compares."""
        return self._selection.put_into(end if self._rows is None else self._rows.marked(end, start))

    def _refuse_without_server(self, offset: SourceOffset) -> None:
        if self._rows is None and offset.snapshot is not None and not offset.snapshot.finished:
            raise ConfigError(
                "the checkpoint is of a query that is still reading its tables, and no server is named to read them "
                "from.",
                hint="Set host and user beside relayDir, as when the query was begun.",
            )

    def _is_reading(self, start: SourceOffset) -> bool:
        return self._rows is not None and self._rows.is_reading(start)

    def _rekeyed(self, start: SourceOffset, end: SourceOffset | None) -> SourceOffset:
        """Return another start where the batch would have tables whose keys were changed while they are read."""
        if self._rows is None or not self._is_reading(start):
            return start
        begin = self._places.of_start(start).scan_from
        end_at = begin if end is None else self._places.of_start(end).reached
        revised = self._rows.rekeyed(start, begin, end_at)
        return start if revised is start else self._as_read(revised)

    def _with_rows(self, start: SourceOffset, end: SourceOffset | None, *, bounded: bool) -> SourceOffset | None:
        """Return the end of a batch with rows of the tables themselves, as of that place."""
        if self._rows is None or not self._is_reading(start):
            return end
        if end is None and bounded:
            self._rows.gather(start, ends=self._target is not None)
        place = self._places.of_start(start if end is None else end)
        if not place.exact:
            return end  # no state of the tables was ever that of this position, in the order of this log
        return self._rows.advance(start, end, self._places.head_at(place), bounded=bounded)

    def _next_end(self, start: SourceOffset) -> SourceOffset | None:
        """Return the next end within the limits; None: nothing is there yet, or less than a batch waits for; or the
        target is reached.
        """
        place = self._places.of_start(start)  # also where nothing is left to read: the server may be another one
        if self._target is not None and self._target.is_done(start):
            return None
        reading = self._is_reading(start)
        admission = self._shared if reading else self._admission
        wait = self._target is None and start.part is None and admission.waits and not self._feed.full and not reading
        wait = wait and not (self._borders is not None and self._borders.ended)  # what comes after it is there
        seen = admission.looked_at(place) if wait else place.reached
        ready = reading and self._rows is not None and self._rows.is_ready(start)
        news = self._feed.wait_beyond(seen, 0.0 if ready else self._poll_s(reading=reading))
        self._planned = self._planned or self._places.head_at(place)
        if not news:
            self._trim(start)  # an idle table sends no commit, and a full relay log would stay full
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
            # A new relay file without a group in it: the same place under another name.
            self._places.remember(start, OffsetPlace.exactly(goal, place.prepared) if place.exact else place)
            return None
        return self._offset(start, place, end)

    def _poll_s(self, *, reading: bool) -> float:
        """Return how long to wait for news; rows of tables that are read are news too, and wake no one."""
        if reading:
            return LONG_POLL_S
        silence = time.monotonic() - self._news_s
        return min(LONGEST_POLL_S, max(LONG_POLL_S, silence / SILENCE_A_POLL))

    def _fill(self, place: OffsetPlace, target: ReadingEnd) -> None:
        """Wait while more of what is to be read comes in than a batch from `place` has: a sink pays for each batch.

        It looks at the head: to wait beyond a place would tell the feed that all before it is read.
        """
        while not target.is_there:
            head = self._feed.head().location
            if self._bytes_between(place.reached, head) >= self._admission.fills or not self._grows(head):
                return

    def _grows(self, head: RelayLocation) -> bool:
        """Tell whether the log grows beyond its head while it is waited for."""
        deadline = time.monotonic() + LONG_POLL_S
        while self._feed.head().location == head:
            if time.monotonic() > deadline:
                return False
            time.sleep(HEAD_POLL_S)
        return True

    def _bytes_between(self, start: RelayLocation, end: RelayLocation) -> int:
        if self._backlog is None:  # a feed that has started stays in its folder
            self._backlog = Backlog(self._feed.log.directory)
        return self._backlog.bytes(start, end)

    def _goal(self, place: OffsetPlace) -> RelayLocation:
        """Return how far a batch may go: to the head, or to the target if that is before it."""
        return self._feed.head().location if self._target is None else self._target.goal(place)

    def _end_of_all(self, start: SourceOffset, target: ReadingEnd | None) -> SourceOffset | None:
        """Wait for the target and return it, whatever the limits."""
        place = self._places.of_start(start)  # as above
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
            return replace(offset, part=start.part)  # other domains' transactions come first on this server
        return offset

    def report(self) -> dict[str, Any] | None:
        """Report how far the replica is, and how far behind it the query: Spark shows it as the source's
        latestOffset.
        """
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
        """Return the ranges of (start, end]; waits until the relay log has them, as long as the replica keeps
        trying.
        """
        self._anchor_due &= not end.anchor  # it is logged: Spark had come so far before a crash
        start = end if end.anchor else end.begin or start
        self._selection.compare(end, start)
        self._refuse_without_server(end)
        while True:
            try:
                return self._ranges.partitions(start, end)
            except RelayFileRemovedError as error:
                self._begin_again(error)

    def whole_range(self, start: SourceOffset, end: SourceOffset) -> list[ChangePartition]:
        """Return the ranges of a batch read, which no offset was planned for: what a stream refuses, it refuses as
        well.
        """
        first = self._places.of_start(start)
        last = self._places.of_end(end.place, first)
        self._statements.admit_all(self._feed.log, start, first, last, end.position)
        return self.partitions(start, end)

    def commit(self, end: SourceOffset) -> None:
        """Let whole relay files before `end` go: Spark will not ask for anything up to it again."""
        self._tables.release(end)
        if self._rows is not None:
            self._rows.release(end)
        if self._places.known(end) is not None:
            with contextlib.suppress(RelayFileRemovedError):  # the next batch meets it too, and fetches the file
                self._trim(end)

    def _trim(self, offset: SourceOffset) -> None:
        place = self._places.of_start(offset)
        if place.holds_files and (gone := self._forgotten.among(place.prepared, offset.position)):
            self._places.forget(gone)
            place = self._places.of_start(offset)
        self._kept.release(place.keep_from)

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        self._feed.close()
