"""Snapshot rows in the batches of a stream (startingPosition=initial): the offsets and partitions for them.

`SnapshotRows` takes the frontier of an offset and V, the place at which a batch ends. It returns the offset with the
frontier that this batch reaches, and the partitions of the snapshot rows, all as of V. An earlier process may have
planned the batch. `SnapshotRows` makes the table reader when an offset needs it, and closes it after the last row.

An offset has V, and the frontier before the rows of the batch are delivered. The rows are a function of both, so a
replayed batch has the same rows.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from replica.errors import ConfigError, PrerequisiteError
from replica.protocol.gtid import Gtid
from replica.schema.patterns import matcher, table_text
from replica.snapshot.frontier import NOTHING, Frontier
from streaming_source.offsets.reading_requests import RequestedTables
from streaming_source.planning.tables.keys import NAMED, ChangedKeys, first_rename
from streaming_source.rows.partition import MappedRange, ReadRows, Surroundings
from streaming_source.sinks.query_lag import progress_json, progress_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.schedule import ReadLimit
    from replica.snapshot.snapshot import Advance, SnapshotProgress
    from replica.snapshot.spool.batches import SpoolPart
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.offsets.reading_requests import RequestFolder, ResnapshotRequest
    from streaming_source.options.reading_options import ResnapshotOption
    from streaming_source.planning.admission import BatchLimits
    from streaming_source.ranges.places import Feed
    from streaming_source.rows.partition import CatalogChanges, ChangePartition
    from streaming_source.selection.resolver import SelectedTables


class ReadKeys(Protocol):
    """Keys of the tables that are read: the interface of a `KeyColumns`. Only one thread calls it."""

    def delivered(self, frontier: Frontier) -> DeliveredKeys:
        """Return the frontier with keys with which rows are compared."""
        ...

    def changed(self, frontier: Frontier, names: Collection[TableName]) -> Collection[TableName]:
        """Return the tables whose key differs from the key by which a part of their rows was delivered."""
        ...


class RowReading(Protocol):
    """Reader of the tables: the interface of a `TableSnapshot`. Only one thread calls it."""

    blocked_tables: tuple[TableName, ...]
    """Tables without rows as of the last requested position, but with rows as of a later one."""

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """Tables whose keys changed. They are not read any further until a re-snapshot is requested."""
        ...

    def start(self, frontier: Frontier) -> None:
        """Begin to read after the frontier."""
        ...

    def ready(self) -> bool:
        """Return True if rows wait to be delivered."""
        ...

    def more_rows_expected(self, limit: ReadLimit) -> bool:
        """Return True if a batch of this limit would get more rows by waiting."""
        ...

    def advance(self, frontier: Frontier, v: RelayHead, limit: ReadLimit) -> Advance | None:
        """Reconcile waiting rows with V and write them to disk; None if no rows can be delivered now."""
        ...

    lost_tables: Mapping[TableName, str]
    """Tables whose rows the last `parts` could not return, with the reasons."""

    def parts(
        self, before: Frontier, after: Frontier, v: RelayHead, *, without: Collection[TableName]
    ) -> Sequence[SpoolPart]:
        """Return the rows between two frontiers as of V. Lost rows are read again.

        Tables in `without` have no rows here.
        """
        ...

    def keep_from(self) -> RelayLocation | None:
        """Return the first place of the relay log that is still needed."""
        ...

    def release(self, frontier: Frontier) -> None:
        """Release the rows before the frontier."""
        ...

    def progress(self) -> SnapshotProgress:
        """Return the progress of the read."""
        ...

    def close(self) -> None:
        """End all reading."""
        ...


# `range_of` takes a part of a spool file of rows and the offset at which the rows are valid.


def range_of(part: SpoolPart, end: SourceOffset, catalog: CatalogChanges = ()) -> MappedRange:
    """Return snapshot rows in the form that a task reads. The rows are those of the offset `end`."""
    gtid, timestamp = _last_transaction(end)
    return MappedRange(
        *(str(part.path), part.start, part.end, False),
        around=Surroundings(part.head, part.tail),
        catalog=catalog,
        read=ReadRows(gtid.domain_id, gtid.server_id, gtid.seq_no, timestamp, part.first_row, len(end.position) > 1),
    )


def _last_transaction(end: SourceOffset) -> tuple[Gtid, int]:
    """Return the last transaction before an offset, and its time in seconds; 0 if the time is unknown.

    The result depends only on the offset, so it is the same in every replay of a batch. An offset without a received
    group does not name a last transaction. The result is then the transaction of its first domain.
    """
    if end.last is not None:
        return end.last.gtid, end.last.time
    return next(iter(end.position), Gtid(0, 0, 0)), 0


MAX_NAMED: Final = 500
"""Most tables that an offset names. They take some 20 KB in each report of progress until they are read."""
LONGEST_REASON: Final = 500
"""Most characters of a reason in an offset: a sentence and its hint."""
READY_POLL_S: Final = 0.02
"""Seconds between two checks for rows. A chunk takes some 0.5 s to read."""

PROGRESS_EVERY_S: Final = 60.0
"""Seconds between two log messages about the progress."""
_log = logging.getLogger(__name__)


class SnapshotRows:
    """Snapshot rows of one query. Only one thread calls it.

    If a request folder exists, the query requests a re-snapshot of a table whose key changes while a part of the table
    is delivered. It also excludes tables that cannot be read any more. The program that writes requests learns both
    from the offsets. Queries without a request folder stop in these cases.

    Args:
        open_reading: makes the table reader.
        keys: makes the object that knows the keys of tables.
        keys_in_rows: finds tables with rows of another key in partitions.
        limits: the limits of a batch, for changes and snapshot rows together.
        initial: whether a query without a checkpoint begins with all rows.
        requests: the folder of re-snapshot requests.
        judge: raises an error if the tables cannot be read correctly.
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
        again: ResnapshotOption | None = None,
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
        self._resnapshot = again
        self._requests = requests
        self._requested: RequestedTables | None = None
        self._ended_at: SourceOffset | None = None
        self._reading: RowReading | None = None
        self._started = False
        self._epoch: object = None
        self._steps: list[tuple[Frontier, Frontier]] = []
        self._next_message_s = 0.0
        self._gathers_until_s = 0.0

    # -- offsets -----------------------------------------------------------------------------------------------------

    def starting(self, offset: SourceOffset) -> SourceOffset:
        """Return the first offset of a query, at which no table is read.

        Raises:
            PrerequisiteError, AuthenticationError: tables cannot be read correctly; the error names all of them.
        """
        if not self._initial:
            return offset
        self._judge()
        return self.marked(replace(offset, snapshot=Frontier()), offset)

    def marked(self, end: SourceOffset, start: SourceOffset) -> SourceOffset:
        """Return the end of a batch, with the last value of the option resnapshot and the requests that begin."""
        return replace(
            end, again=start.again if self._resnapshot is None else self._resnapshot.word, asked=self._requested
        )

    def revised(self, start: SourceOffset, added: Collection[TableName]) -> SourceOffset:
        """Return the start of a batch. The start is changed if delivered tables have to be read.

        These are tables that were added to the selection, and those of the option resnapshot or of requests.

        Raises:
            ConfigError: the option names no table, or too many; or a request cannot be read.
        """
        self._requested = self._due(start)
        names = set(added)
        if self._resnapshot is not None and start.again != self._resnapshot.word:
            matching = [name for name in self._tables.catalog if matcher(self._resnapshot.patterns).fits(name)]
            if not matching:
                raise ConfigError(f"resnapshot={self._resnapshot} matches none of the query's tables.")
            names.update(matching)
        if start.part is not None or not (names or self._requested):
            return start
        if len(names) > MAX_NAMED:
            raise ConfigError(
                f"{len(names)} tables are to be read in addition to those already delivered, but an offset can name "
                f"{MAX_NAMED} at most.",
                hint="Add them in several steps, with a restart of the query for each, or start with a new checkpoint.",
            )
        if self._requested is not None:
            names.update(name for name in self._requested.tables if self._tables.selects(*name))
        frontier = (start.snapshot or Frontier(done=True)).restarted(names)
        if frontier == start.snapshot:
            return start
        _warn_of_domains(names.difference(added), start.position)
        if not self.is_reading(start):
            self.close()  # the last reader, if there was one, has finished
            self._ended_at = start
        return replace(start, snapshot=frontier)

    @property
    def requested(self) -> tuple[TableName, ...]:
        """Tables of the requests, whose rows are read from the next batch on."""
        return () if self._requested is None else self._requested.tables

    def _due(self, start: SourceOffset) -> RequestedTables | None:
        """Return the requests that the batch after an offset begins to execute; None for none.

        The requests in the offset itself are done, because Spark has logged it.
        """
        if self._requests is None or start.part is not None:
            return None
        done = () if start.asked is None else start.asked.request_ids
        self._requests.remove(done)
        taken: list[ResnapshotRequest] = []
        names = 0
        for request in self._requests.due():
            names += len(request.tables)
            if taken and names > MAX_NAMED:
                break  # the rest goes into the next batch
            taken.append(request)
        return RequestedTables.of(taken) if taken else None

    def rekeyed(self, start: SourceOffset, begin: RelayLocation, end: RelayLocation) -> SourceOffset:
        """Return the start of a batch.

        The start differs if keys of tables changed, so that they are read from their first rows on.

        `begin` and `end` are the places of the batch in the log. Keys may change again after `end`.
        """
        if start.snapshot is None or start.part is not None:
            return start
        requested = self._changed.request_changed(self._feed.log, start.snapshot, begin, end, self._rekeyed)
        return self.revised(start, ()) if requested else start

    def _rekeyed(self) -> Collection[TableName]:
        return self._reading.rekeyed if self._started and self._reading is not None else ()

    def is_reading(self, offset: SourceOffset) -> bool:
        """Return True if tables are left to read after an offset."""
        return offset.snapshot is not None and not offset.snapshot.finished

    @property
    def blocked_tables(self) -> tuple[TableName, ...]:
        """Tables with rows that can be read only as of a later position than the last requested one."""
        return () if self._reading is None else self._reading.blocked_tables

    def left(self, offset: SourceOffset) -> set[TableName]:
        """Return the tables that are not delivered completely at an offset."""
        frontier = offset.snapshot
        if frontier is None:
            return set()
        begun = {name for name, _ in frontier.open}
        return begun | {name for name in self._tables.catalog if frontier.reached(name) is not None}

    def is_ready(self, offset: SourceOffset) -> bool:
        """Return True if snapshot rows wait to be delivered after an offset."""
        return self.is_reading(offset) and self._running(offset.snapshot).ready()

    def gather(self, start: SourceOffset, *, ends: bool) -> None:
        """Wait while more snapshot rows arrive and a batch is not full.

        Each batch costs a sink the same, and the first chunks of a table are small. A query that `ends`
        (Trigger.AvailableNow) waits as long as needed. If batches wait for a minimum of changes, it waits until
        `maxTriggerDelay` has passed since the last batch. Other queries do not wait.
        """
        if not self.is_reading(start) or not (ends or self._limits.min_rows is not None):
            return
        reading, limit = self._running(start.snapshot), self._limit(changes=False, bounded=True)
        while (ends or time.monotonic() < self._gathers_until_s) and reading.more_rows_expected(limit):
            self._wait(start)

    def stop_at(self, start: SourceOffset, begin: RelayLocation, head: RelayHead) -> tuple[RelayHead, Frontier | None]:
        """Return the end of a batch from `start` to `head`, and the frontier at this end.

        The end is earlier than `head` if a table takes another table's name. The frontier has no snapshot rows of this
        batch.

        Raises:
            SchemaError: a statement renames something, and the parser does not understand it.
        """
        frontier = start.snapshot
        if frontier is None or frontier.finished:
            return head, None
        selects, lenient = self._tables.selects, self._requests is not None
        found = first_rename(self._feed.log, begin, head, frontier, selects, lenient=lenient)
        if found is None:
            return head, frontier
        _log.warning(
            "%s is a new name of a renamed table: it is re-snapshotted", ", ".join(map(table_text, found.names))
        )
        _warn_of_domains(found.names, found.head.position)
        return found.head, frontier.restarted(found.names)

    def advance(
        self, start: SourceOffset, end: SourceOffset | None, head: RelayHead, *, bounded: bool
    ) -> SourceOffset | None:
        """Return the end of a batch with as many snapshot rows as are ready.

        Args:
            start: the start of the batch.
            end: the end of the batch's changes; None if there are none, so that the batch ends at `start`.
            head: the same end as a place of the log.
            bounded: whether the rows stay within the limits. If not, the call waits for all rows that are left.
        """
        self._log_progress(start)
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
                time.sleep(READY_POLL_S)  # the caller may repeat the call at once, for minutes
            if bounded or (step is None and reading.rekeyed):
                break  # a table with another key is read from its first row after the next start
            if step is None and reading.blocked_tables:
                tables = ", ".join(map(table_text, reading.blocked_tables[:NAMED]))
                raise PrerequisiteError(
                    f"{tables} cannot be read as of {head.position}, the end that Trigger.Once had set: it was "
                    "altered since, or changes were logged without whole row images (binlog_row_image).",
                    hint="Use trigger(availableNow=True): its last batches continue to a position at which the rows "
                    "can be read.",
                )
            if step is None:
                self._wait(start)
        if not steps:
            return end
        self._steps = steps
        self._gathers_until_s = time.monotonic() + self._limits.max_delay_s
        return replace(start.place if end is None else end, snapshot=frontier, refused=_logged_refusals(refused))

    def _limit(self, *, changes: bool, bounded: bool) -> ReadLimit:
        """Return the share of snapshot rows in a batch. Changes share the limits if there are any."""
        from replica.snapshot.chunks.schedule import ReadLimit  # imports the table reader, which few queries need

        limits = self._limits.beside_changes() if changes else self._limits
        return ReadLimit(limits.max_rows, limits.max_bytes) if bounded else ReadLimit()

    def _wait(self, start: SourceOffset) -> None:
        """Wait for rows. The feed reports a replica that has failed."""
        self._feed.head()
        time.sleep(READY_POLL_S)
        self._log_progress(start)

    # -- partitions --------------------------------------------------------------------------------------------------

    def delivered(self, start: SourceOffset) -> DeliveredKeys | None:
        """Return the delivered rows by which changes after an offset are filtered; None if all changes count."""
        frontier = start.snapshot
        return None if frontier is None or frontier.finished else self._changed.delivered(start, frontier)

    def request_rekeyed(self, start: SourceOffset, partitions: Sequence[ChangePartition]) -> bool:
        """Request a re-snapshot of tables whose rows in the partitions cannot be compared with delivered rows.

        Returns:
            Whether there are such tables. They are read from their first row on after the batch, and count as not
            delivered in it.
        """
        return start.snapshot is not None and self._changed.request_changed_rows(start.snapshot, partitions)

    def parts(
        self, start: SourceOffset, end: SourceOffset, head: RelayHead, catalog: CatalogChanges
    ) -> tuple[list[MappedRange], dict[TableName, str]]:
        """Return the snapshot rows between two offsets, as of `head`, the place at which the second offset ends.

        The second value has the tables whose rows were lost and cannot be read again, with the reasons. Without a
        request folder this is an error.
        """
        before, after = start.snapshot, end.snapshot
        if before is None or after is None:
            return [], {}
        reading = self._running(after)  # also after the last row, because lost rows are read again
        planned = bool(self._steps) and (self._steps[0][0], self._steps[-1][1]) == (before, after)
        steps = self._steps if planned else [(before, after)]
        without = {name for name, _ in end.refused}
        parts: list[SpoolPart] = []
        lost: dict[TableName, str] = {}
        for one, other in steps:
            parts += reading.parts(one, other, head, without=without)
            lost |= reading.lost_tables
        for name, why in lost.items():
            _log.error("%s: the files with snapshot rows are lost, and %s", table_text(name), why)
        return [range_of(part, end, catalog) for part in parts if part.table not in lost], lost

    def lost(self, start: SourceOffset, end: SourceOffset, why: str) -> dict[TableName, str]:
        """Return the tables with snapshot rows between two offsets, if no row of them can be read.

        Returns:
            The tables with the reason; empty if the query has no request folder, so that the reason is an error.
        """
        before, after = start.snapshot, end.snapshot
        if self._requests is None or before is None or after is None:
            return {}
        names = {name for name, _ in (*before.open, *after.open)} | set(self._tables.catalog)
        reached = {name: (before.reached(name), after.reached(name)) for name in names}
        return {name: why for name, (one, other) in reached.items() if one is not None and other not in (one, NOTHING)}

    def release(self, end: SourceOffset) -> None:
        """Release the rows before an offset, because Spark will not ask for them again."""
        if self._reading is None or end.snapshot is None or end == self._ended_at:
            return  # the current reader began after the offset
        self._reading.release(end.snapshot)
        if end.snapshot.finished:
            _log.info("all tables are read, up to %s", end.position)
            self.close()

    def needed_from(self) -> RelayLocation | None:
        """Return the first place of the relay log that the table reader needs.

        None: the reader needs no part of the log, or does not know yet.
        """
        return None if self._reading is None else self._reading.keep_from()

    def report(self) -> dict[str, Any]:
        """Return the value for the progress of the query while tables are read."""
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
            self.close()  # places of the previous log may mean other groups
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

    def _log_progress(self, start: SourceOffset) -> None:
        now = time.monotonic()
        if self._started and self._reading is not None and now >= self._next_message_s and self.is_reading(start):
            self._next_message_s = now + PROGRESS_EVERY_S
            _log.info("tables: %s", progress_line(progress_json(self._reading.progress())))


def has_snapshot_rows(start: SourceOffset, end: SourceOffset) -> bool:
    """Return True if a batch has snapshot rows."""
    return start.snapshot is not None and end.snapshot is not None and start.snapshot.rows != end.snapshot.rows


def _logged_refusals(refused: Collection[tuple[TableName, str]]) -> tuple[tuple[TableName, str], ...]:
    """Log which tables are excluded, and return their reasons in the length that an offset keeps."""
    for name, why in refused:
        _log.error("%s is left out: %s", table_text(name), why)
    return tuple((name, why[:LONGEST_REASON]) for name, why in refused)


def _warn_of_domains(names: Collection[TableName], position: GtidPosition) -> None:
    """Warn that rows of a re-snapshot sort before all changes, if changes arrive in several domains."""
    if names and len(position) > 1:
        _log.warning(
            "%s: re-snapshotted while changes arrive in %d replication domains. By _sequence, the snapshot rows sort "
            "before all changes. A sink that compares _sequence over batches (AUTO CDC) keeps its old rows: empty the "
            "table there",
            ", ".join(sorted(table_text(name) for name in names)[:NAMED]),
            len(position),
        )
