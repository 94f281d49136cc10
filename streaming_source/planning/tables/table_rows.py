"""The rows of the tables themselves in the batches of a stream: startingPosition=initial, from the offsets' side.

In: how far the tables are read, as an offset says it, and the place V that a batch ends at. Out: the offset that says
how far they are read with this batch, all of it as of V, and the partitions of those rows, for a batch that was planned
just now or in an earlier life. What reads the tables is made when an offset asks for it, and ended with the last row.

Offsets say V and how far the tables are read before anything of the batch is delivered. The rows are a function of
both: whatever happens in between, the batch is the same when it is read again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError, PrerequisiteError
from replica.schema.patterns import matcher, table_text
from replica.snapshot.frontier import Frontier
from streaming_source.offsets.reading_requests import TablesAgain
from streaming_source.planning.tables.changed_keys import NAMED, ChangedKeys
from streaming_source.planning.tables.renamed import first_rename
from streaming_source.planning.tables.row_ranges import range_of
from streaming_source.queries.reading_progress import progress_json, progress_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.choice import ReadLimit
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.offsets.reading_requests import ReadingRequest, RequestFolder
    from streaming_source.options.reading_options import ReadAgain
    from streaming_source.planning.admission import BatchLimits
    from streaming_source.planning.tables.row_reading import ReadKeys, RowReading
    from streaming_source.ranges.places import Feed
    from streaming_source.rows.partition import CatalogChanges, ChangePartition, MappedRange
    from streaming_source.selection.resolver import SelectedTables

MAX_NAMED: Final = 500
"""Tables that an offset names: some 20 KB, in each report of progress, until they are read."""
LONGEST_REASON: Final = 500
"""Characters of a reason in an offset: a sentence and its hint."""
READY_POLL_S: Final = 0.02
"""How often it is asked whether rows are there: a chunk takes some 0.5 s to read."""
SAY_EVERY_S: Final = 60.0
"""How often the log tells how far the tables are read."""

_log = logging.getLogger(__name__)


class SnapshotRows:
    """One per query, called by one thread. `initial`: a query without a checkpoint begins with all rows, unless
    `judge` refuses; `requests`: where programs ask for tables while it runs; `limits`: what a batch may hold, of
    changes and of rows of tables together; `open_reading` makes what reads, and `keys` what knows the keys of tables;
    `keys_in_rows` finds tables with rows of another key in partitions.

    With `requests` it asks for a table itself whose key is changed while a part of it is delivered, and leaves out one
    that cannot be read any more: who gives requests follows what offsets say of tables. Other queries end there.
    """

    def __init__(
        self,
        feed: Feed,
        tables: SelectedTables,
        open_reading: Callable[[], RowReading],
        keys: Callable[[], ReadKeys],
        keys_in_rows: Callable[[Sequence[ChangePartition]], Collection[TableName]],
        limits: BatchLimits,
        *,
        initial: bool,
        again: ReadAgain | None = None,
        requests: RequestFolder | None = None,
        judge: Callable[[], None] = lambda: None,
    ) -> None:
        self._feed = feed
        self._judge = judge
        self._tables = tables
        self._open = open_reading
        self._changed = ChangedKeys(keys, keys_in_rows, requests, again)
        self._limits = limits
        self._initial = initial
        self._again = again
        self._requests = requests
        self._asked: TablesAgain | None = None
        self._ended_at: SourceOffset | None = None
        self._reading: RowReading | None = None
        self._started = False
        self._epoch: object = None
        self._steps: list[tuple[Frontier, Frontier]] = []
        self._next_word_s = 0.0
        self._gathers_until_s = 0.0

    # -- offsets -----------------------------------------------------------------------------------------------------

    def starting(self, offset: SourceOffset) -> SourceOffset:
        """Return the first offset of a query, before which no table is read.

        Raises:
            PrerequisiteError, AuthenticationError: tables cannot be read so that their rows are right; names them all.
        """
        if not self._initial:
            return offset
        self._judge()
        return self.marked(replace(offset, snapshot=Frontier()), offset)

    def marked(self, end: SourceOffset, start: SourceOffset) -> SourceOffset:
        """Return the end of a batch with the word of what was read again last, and the requests it begins to follow."""
        return replace(end, again=start.again if self._again is None else self._again.word, asked=self._asked)

    def revised(self, start: SourceOffset, added: Collection[TableName]) -> SourceOffset:
        """Return the start of a batch where tables are to be read that the checkpoint has as delivered: those that were
        added to the selection, and those that are asked for again, by the option or by requests.

        Raises:
            ConfigError: no table is asked for by the option, or too many; a request cannot be read.
        """
        self._asked = self._due(start)
        names = set(added)
        if self._again is not None and start.again != self._again.word:
            asked = [name for name in self._tables.catalog if matcher(self._again.patterns).fits(name)]
            if not asked:
                raise ConfigError(f"snapshotAgain={self._again} names none of the query's tables.")
            names.update(asked)
        if start.part is not None or not (names or self._asked):
            return start
        if len(names) > MAX_NAMED:
            raise ConfigError(
                f"{len(names)} tables are to be read beside those that are delivered: the offset names each of them, "
                f"{MAX_NAMED} at most.",
                hint="Add them in several steps, each behind a restart of the query, or start with a new checkpoint.",
            )
        if self._asked is not None:
            names.update(name for name in self._asked.tables if self._tables.wants(*name))
        frontier = (start.snapshot or Frontier(done=True)).again(names)
        if frontier == start.snapshot:
            return start
        _warn_of_domains(names.difference(added), start.position)
        if not self.is_reading(start):
            self.close()  # what read before, if anything did, has come to its end
            self._ended_at = start
        return replace(start, snapshot=frontier)

    @property
    def asked(self) -> tuple[TableName, ...]:
        """The tables that requests ask for, and whose rows are read from the next batch on."""
        return () if self._asked is None else self._asked.tables

    def _due(self, start: SourceOffset) -> TablesAgain | None:
        """Return the requests that the batch behind an offset begins to follow; None for none.

        Those that the offset has are done: Spark has logged it.
        """
        if self._requests is None or start.part is not None:
            return None
        done = () if start.asked is None else start.asked.words
        self._requests.remove(done)
        taken: list[ReadingRequest] = []
        names = 0
        for request in self._requests.due():
            names += len(request.tables)
            if taken and names > MAX_NAMED:
                break  # with the next batch
            taken.append(request)
        return TablesAgain.of(taken) if taken else None

    def rekeyed(self, start: SourceOffset, begin: RelayLocation, end: RelayLocation) -> SourceOffset:
        """Return the start of a batch where tables are to be read from their first rows on, because the keys that parts
        of them were delivered by are gone.

        `begin` and `end`: places of the log between which the batch lies, behind which keys may be others again.
        """
        if start.snapshot is None or start.part is not None:
            return start
        asked = self._changed.asked_for(self._feed.log, start.snapshot, begin, end, self._rekeyed)
        return self.revised(start, ()) if asked else start

    def _rekeyed(self) -> Collection[TableName]:
        return self._reading.rekeyed if self._started and self._reading is not None else ()

    def is_reading(self, offset: SourceOffset) -> bool:
        """Tell whether tables are left to read behind an offset."""
        return offset.snapshot is not None and not offset.snapshot.finished

    @property
    def held_back(self) -> tuple[TableName, ...]:
        """The tables with rows that can only be had as of a later position than the one asked for last."""
        return () if self._reading is None else self._reading.held_back

    def left(self, offset: SourceOffset) -> set[TableName]:
        """Return the tables that are not delivered as a whole behind an offset."""
        frontier = offset.snapshot
        if frontier is None:
            return set()
        begun = {name for name, _ in frontier.open}
        return begun | {name for name in self._tables.catalog if frontier.reached(name) is not None}

    def is_ready(self, offset: SourceOffset) -> bool:
        """Tell whether rows of tables wait to be delivered behind an offset."""
        return self.is_reading(offset) and self._running(offset.snapshot).ready()

    def gather(self, start: SourceOffset, *, ends: bool) -> None:
        """Wait for more rows of tables than are there, while they come and a batch is not full: each costs a sink the
        same, and the first chunks of a table are small.

        A query that `ends` (Trigger.AvailableNow) waits for all it takes; one whose batches wait for a minimum of
        changes waits until `maxTriggerDelay` has passed since the batch before; no other waits.
        """
        if not self.is_reading(start) or not (ends or self._limits.min_rows is not None):
            return
        reading, limit = self._running(start.snapshot), self._limit(changes=False, bounded=True)
        while (ends or time.monotonic() < self._gathers_until_s) and reading.more_comes(limit):
            self._wait(start)

    def stop_at(self, start: SourceOffset, begin: RelayLocation, head: RelayHead) -> tuple[RelayHead, Frontier | None]:
        """Return where a batch from `start` to `head` ends, because a table takes another's name, and how far tables
        are read there without a row more.

        Raises:
            SchemaError: a statement renames something, and is not understood.
        """
        frontier = start.snapshot
        if frontier is None or frontier.finished:
            return head, None
        wants, lenient = self._tables.wants, self._requests is not None
        found = first_rename(self._feed.log, begin, head, frontier, wants, lenient=lenient)
        if found is None:
            return head, frontier
        _log.warning("%s took another name: reading what it holds now", ", ".join(map(table_text, found.names)))
        _warn_of_domains(found.names, found.head.position)
        return found.head, frontier.again(found.names)

    def advance(
        self, start: SourceOffset, end: SourceOffset | None, head: RelayHead, *, bounded: bool
    ) -> SourceOffset | None:
        """Return the end of a batch with as many rows of tables as are there.

        Args:
            start: where the batch begins.
            end: where its changes end, None where there are none: then at `start`.
            head: the same as a place of the log.
            bounded: within the limits; else all rows that are left, however long that takes.
        """
        self._say(start)
        reached = start if end is None else end
        frontier = reached.snapshot
        if frontier is None or frontier.finished or reached.part is not None or frontier != start.snapshot:
            return end
        reading = self._running(frontier)
        limit = self._limit(changes=end is not None, bounded=bounded)
        if limit.rows == 0:
            return end
        steps: list[tuple[Frontier, Frontier]] = []
        refused: tuple[tuple[TableName, str], ...] = ()
        while not frontier.finished:
            step = reading.advance(frontier, head, limit)
            if step is not None:
                steps.append((frontier, step.frontier))
                frontier = step.frontier
                refused += step.refused
            if bounded and step is None and end is None:
                time.sleep(READY_POLL_S)  # who asks again at once may do so for minutes
            if bounded or (step is None and reading.rekeyed):
                break  # what has another key is read from its first row on behind the next start
            if step is None and reading.held_back:
                tables = ", ".join(map(table_text, reading.held_back[:NAMED]))
                raise PrerequisiteError(
                    f"{tables} cannot be read as of {head.position}, which Trigger.Once settled before: it was altered "
                    "since, or changes were logged without whole row images (binlog_row_image).",
                    hint="Use trigger(availableNow=True), whose last batches go on to where the rows can be had.",
                )
            if step is None:
                self._wait(start)
        if not steps:
            return end
        self._steps = steps
        self._gathers_until_s = time.monotonic() + self._limits.max_delay_s
        return replace(start.place if end is None else end, snapshot=frontier, refused=_said(refused))

    def _limit(self, *, changes: bool, bounded: bool) -> ReadLimit:
        """Return what tables may take of a batch, which changes share with them where there are any."""
        from replica.snapshot.chunks.choice import ReadLimit  # brings what reads tables, which few queries do

        limits = self._limits.beside_changes() if changes else self._limits
        return ReadLimit(limits.max_rows, limits.max_bytes) if bounded else ReadLimit()

    def _wait(self, start: SourceOffset) -> None:
        """Wait for rows; what is behind the feed says there why nothing comes any more."""
        self._feed.head()
        time.sleep(READY_POLL_S)
        self._say(start)

    # -- partitions --------------------------------------------------------------------------------------------------

    def delivered(self, start: SourceOffset) -> DeliveredKeys | None:
        """Return which changes behind an offset count; None: all."""
        frontier = start.snapshot
        return None if frontier is None or frontier.finished else self._changed.delivered(start, frontier)

    def asks_again(self, start: SourceOffset, partitions: Sequence[ChangePartition]) -> bool:
        """Ask for the tables whose rows in a batch's partitions cannot be compared with what is delivered, and tell
        whether there is one: it is read from its first row on behind the batch, and counts as not delivered in it.
        """
        return start.snapshot is not None and self._changed.asked_for_rows(start.snapshot, partitions)

    def parts(
        self, start: SourceOffset, end: SourceOffset, head: RelayHead, catalog: CatalogChanges
    ) -> list[MappedRange]:
        """Return the rows of tables between two offsets, as they are at `head`, where the second one ends."""
        before, after = start.snapshot, end.snapshot
        if before is None or after is None:
            return []
        reading = self._running(after)  # also behind the last row: what was lost is read again
        planned = bool(self._steps) and (self._steps[0][0], self._steps[-1][1]) == (before, after)
        steps = self._steps if planned else [(before, after)]
        without = {name for name, _ in end.refused}
        parts = [part for one, other in steps for part in reading.parts(one, other, head, without=without)]
        return [range_of(part, end, catalog) for part in parts]

    def release(self, end: SourceOffset) -> None:
        """Let go what lies before an offset: Spark will not ask for it again."""
        if self._reading is None or end.snapshot is None or end == self._ended_at:
            return  # what reads now began behind it
        self._reading.release(end.snapshot)
        if end.snapshot.finished:
            _log.info("all tables are read, up to %s", end.position)
            self.close()

    def needed_from(self) -> RelayLocation | None:
        """Return from where on the reading of tables needs the relay log; None: nothing of it, or not known yet."""
        return None if self._reading is None else self._reading.keep_from()

    def report(self) -> dict[str, Any]:
        """Return the value for the progress of the query, while tables are read."""
        if self._reading is None or not self._started:
            return {}
        return {"snapshotProgress": progress_json(self._reading.progress())}

    def close(self) -> None:
        reading, self._reading, self._started = self._reading, None, False
        if reading is not None:
            reading.close()

    # -- what reads --------------------------------------------------------------------------------------------------

    def _made(self) -> RowReading:
        if self._reading is not None and self._epoch != self._feed.epoch:
            self.close()  # places of the log from before may mean other groups
        if self._reading is None:
            self._reading, self._epoch = self._open(), self._feed.epoch
        return self._reading

    def _running(self, frontier: Frontier | None) -> RowReading:
        reading = self._made()
        if not self._started and frontier is not None:
            reading.start(frontier)
            self._started = True
            self._gathers_until_s = time.monotonic() + self._limits.max_delay_s
        return reading

    def _say(self, start: SourceOffset) -> None:
        now = time.monotonic()
        if self._started and self._reading is not None and now >= self._next_word_s and self.is_reading(start):
            self._next_word_s = now + SAY_EVERY_S
            _log.info("tables: %s", progress_line(progress_json(self._reading.progress())))


def brings_rows(start: SourceOffset, end: SourceOffset) -> bool:
    """Tell whether a batch has rows of tables themselves."""
    return start.snapshot is not None and end.snapshot is not None and start.snapshot.rows != end.snapshot.rows


def _said(refused: Collection[tuple[TableName, str]]) -> tuple[tuple[TableName, str], ...]:
    """Log which tables are left out, and return their reasons in the length that an offset keeps."""
    for name, why in refused:
        _log.error("%s is left out: %s", table_text(name), why)
    return tuple((name, why[:LONGEST_REASON]) for name, why in refused)


def _warn_of_domains(names: Collection[TableName], position: GtidPosition) -> None:
    """Say that rows of tables which are read again cannot be told from older changes by their order."""
    if names and len(position) > 1:
        _log.warning(
            "%s: read again while changes come in %d replication domains: by _sequence the rows sort before all "
            "changes, so a sink that compares it over batches (AUTO CDC) keeps what it has; empty the table there",
            ", ".join(sorted(table_text(name) for name in names)[:NAMED]),
            len(position),
        )
