"""Snapshot of a query's tables, read beside its stream; the rows of each batch hold at the batch position.

`TableSnapshot` reads tables in threads while the stream runs. `advance` plans a batch: it returns the batch's end
frontier and writes the rows, reconciled with the batch position, to spool files. `parts` returns the same rows after
any restart, from the files or by reading the tables again. Every method raises the error that ended the threads.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import DiskFullError
from replica.relay_log.walks.xa import prepared_at
from replica.snapshot.chunks.names import FirstListing, SnapshotNames
from replica.snapshot.chunks.schedule import ALL, ReadingList, choose_chunks
from replica.snapshot.chunks.table_reading import TableRetries
from replica.snapshot.chunks.threads import ReadingThreads
from replica.snapshot.connection.connection import TableConnection, ask_with_retries
from replica.snapshot.errors import named
from replica.snapshot.frontier import Frontier
from replica.snapshot.images.key_states import PartialRowError
from replica.snapshot.reconcile.reconciler import BlockLostError, ChunkReconciler, ChunkRun, ReconcileResult
from replica.snapshot.reconcile.whole_rows import UnlikeRowsError
from replica.snapshot.reread import RangeReader
from replica.snapshot.spool.batches import BatchName, BatchWriter, find_batch, remove_up_to
from replica.snapshot.spool.spool import Spool, transaction_at
from replica.snapshot.watermark.low import LowWatermark
from replica.snapshot.watermark.primary import TEN_SECONDS
from replica.snapshot.watermark.watch import SourceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from replica.options.config import ReplicaConfig
    from replica.options.values import Endpoint
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.schedule import ReadLimit
    from replica.snapshot.chunks.table_reading import TableReading
    from replica.snapshot.connection.connection import Answer, SnapshotConnection
    from replica.snapshot.pace import Pace
    from replica.snapshot.spool.batches import SpoolPart
    from replica.snapshot.spool.events import LastTransaction
    from replica.snapshot.watermark.low import LogView
# `ProgressMeter.of` returns a `SnapshotProgress`. The rate is measured between calls, so the first call reports 0.


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
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, reading: ReadingList, threads: ReadingThreads, first: FirstListing) -> SnapshotProgress:
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
        self._samples.append((now, rows))
        while now - self._samples[0][0] > RATE_S:
            self._samples.popleft()
        since, before = self._samples[0]
        return (rows - before) / (now - since) if now > since else 0.0


class Advance(NamedTuple):
    """Result of planning a batch.

    Attributes:
        frontier: Frontier at the end of the batch.
        rows: Number of snapshot rows in the batch, which may be 0.
        size: Bytes of the rows.
        refused: Tables that are skipped from now on because they cannot be read, with the reasons.
    """

    frontier: Frontier
    rows: int
    size: int
    refused: tuple[tuple[TableName, str], ...] = ()


class TableSnapshot:
    """Snapshot of one query's tables. One thread calls its methods, whose errors end the query.

    Attributes:
        blocked_tables: Tables that the last `advance` could not reconcile, because a statement after its position
            changed or dropped them. A later position may work, but the same position never does.
        lost_tables: Tables whose rows the last `parts` could not return, with the reasons: its files are lost, and the
            same rows cannot be read again. Empty unless errors are handled table by table.
        forward_only: Tables among `blocked_tables` whose row images lack columns (binlog_row_image), so that changes
            cannot be undone.

    Args:
        config: Configuration of the replica.
        view: Relay log.
        selection: Returns whether the rows of (database, table) are selected.
        pace: Limits of the load on the server.
        spool: Folder of the spool files.
        age_s: Age in seconds after which a binlog position counts as committed; tests shorten it.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        view: LogView,
        selection: Callable[[str, str], bool],
        pace: Pace,
        spool: Path,
        *,
        age_s: float = TEN_SECONDS,
    ) -> None:
        self._config = config
        self._view = view
        self._wanted: Callable[[TableName], bool] = lambda name: selection(*name)
        self._pace = pace
        most = config.relay_max_bytes if pace.spool_bytes is None else pace.spool_bytes
        self._spool = Spool(spool, most_bytes=most, min_free_bytes=config.min_free_bytes)
        self._list = ReadingList()
        self._reconciler = ChunkReconciler(
            view.log, self._spool, resnapshot_statement_dml=pace.resnapshot_statement_dml
        )
        hosts = config.endpoints if pace.host is None else (pace.host,)
        self._watch = SourceWatch(
            *(config, pace, hosts),
            lambda host: LowWatermark(config, host, view.log, age_s=age_s, replica=pace.host is not None),
            self._connect,
            on_change=self._wake,
        )
        self._threads = ReadingThreads(config, pace, self._list, self._spool, self._watch, self._connect)
        self._ranges = RangeReader(
            config, pace, view, self._spool, self._reconciler, self._watch, self._connect, self._wanted
        )
        self._names = SnapshotNames(*(view, self._list, self._wanted), self._ask, pace.host)
        self.blocked_tables: tuple[TableName, ...] = ()
        self.forward_only: tuple[TableName, ...] = ()
        self.lost_tables: Mapping[TableName, str] = {}
        self._retries = TableRetries(pace, self._list, self._reconciler)
        self._reached = Frontier()
        self._first = FirstListing(0, 0)
        self._began: RelayLocation | None = None
        self._needed: tuple[RelayLocation, RelayLocation] | None = None
        self._meter = ProgressMeter()

    # -- start and close -----------------------------------------------------------------------------------------

    def start(self, frontier: Frontier) -> None:
        """Start to read everything that the frontier does not cover.

        Raises:
            ReplicaError: The server does not list its tables, or the spool folder is not usable.
        """
        self._spool.open()
        self._reached = frontier
        self._began = self._view.head().location
        self._watch.start()
        if frontier.finished:
            return
        self._first = self._names.begin(frontier)
        self._threads.start()

    def close(self) -> None:
        """End all threads; the files of batches stay."""
        self._threads.close()
        self._watch.close()
        self._reconciler.forget()

    def keep_from(self) -> RelayLocation | None:
        """Return the relay log location from which its files must be kept; None if no location is known yet.

        The snapshot needs the log from the earliest of four locations. The first is the lowest low watermark of the
        waiting chunks and the chunks being read. The second is the next low watermark, which is not before the log's
        end at the start. The third is the first statement whose table names are not followed yet. The fourth is the
        first group of the XA transactions that are prepared at the earliest of the other three.
        """
        first = self._list.needed_from(self._watch.keep_from() or self._began, self._names.upto)
        if first is None:
            return None
        if self._needed is None or self._needed[0] != first:
            # The rows of a transaction that is prepared at this location come before it.
            prepared = prepared_at(self._view.log, first)
            self._needed = first, min([first, *(group.location for group in prepared)])
        return self._needed[1]

    # -- for the batch planner -----------------------------------------------------------------------------------

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """Tables that are not read any more because the key of their delivered part has changed."""
        return self._list.rekeyed

    def ready(self) -> bool:
        """Return True if a batch would take rows, or would finish the snapshot.

        Raises:
            ReplicaError: The error that ended the threads.
        """
        self._check()
        return bool(self._list.deliverable()) or self._list.finished

    def more_rows_expected(self, limit: ReadLimit) -> bool:
        """Return True if a batch with this limit is not full yet and more rows are being read.

        Raises:
            ReplicaError: The error that ended the threads.
        """
        self._check()
        seen = self._watch.seen
        if seen is None or not self._list.may_yield(seen.low.location) or self._threads.waits_for:
            return False  # the threads may wait for this delivery, after which the log can advance
        waiting = [chunk for table in self._list.deliverable() for chunk in list(table.chunks)]
        rows, size = sum(chunk.rows for chunk in waiting), sum(chunk.size for chunk in waiting)
        full = limit.rows is not None and rows >= limit.rows
        return not full and size < limit.most_bytes

    def advance(
        self,
        frontier: Frontier,
        v: RelayHead,
        limit: ReadLimit = ALL,
        *,
        transaction: LastTransaction | None = None,
    ) -> Advance | None:
        """Plan a batch: reconcile the waiting chunks with its position, and write the rows to disk.

        Args:
            frontier: Frontier at the start of the batch.
            v: Batch position, a location of the relay log.
            limit: Maximum rows and bytes.
            transaction: Last transaction at the batch position; None to look it up in the relay log.

        Returns:
            The planned batch; None if nothing can be delivered now.

        Raises:
            DiskFullError: The rows do not fit on the disk; the state is unchanged.
            ReplicaError: The error that ended the threads, or an error of the reconciliation.
        """
        self._check()
        if frontier.finished:
            return None
        self._resume(frontier)
        self._names.follow(frontier, v)
        taken, absent, outdated = self._reconcilable(v, limit)
        try:
            if not taken and not absent and not self._list.finished:
                return None
            return self._write(frontier, v, taken, absent, transaction)
        finally:
            for table in outdated:
                self._list.restart(table, not_before=v.location)

    def parts(
        self,
        before: Frontier,
        after: Frontier,
        v: RelayHead,
        *,
        transaction: LastTransaction | None = None,
        without: Collection[TableName] = (),
    ) -> list[SpoolPart]:
        """Return the rows of a batch that this or an earlier process planned.

        Args:
            before: Frontier at the start of the batch.
            after: Frontier at the end of the batch.
            v: Batch position, a location of the relay log.
            transaction: Last transaction at the batch position; None to look it up in the relay log.
            without: Tables of which the batch has no rows.

        Raises:
            DataLossError: The batch's files are lost, and later changes of the tables prevent reading them again. If
                errors are handled table by table, the tables are in `lost_tables` instead.
            ReplicaError: Any other error of reading the tables again.
        """
        self.lost_tables = {}
        if after.rows == before.rows:
            return []
        name = BatchName(before, after, v.position)
        found = find_batch(self._spool.folder, name, ours=name.stem in self._spool.finished)
        if found is not None:
            return found
        parts, self.lost_tables = self._ranges.make(name, v, transaction, without)
        return parts

    def release(self, frontier: Frontier) -> None:
        """Remove the files of all committed batches, up to a frontier. A finished frontier also ends the threads."""
        if frontier.finished:
            self.close()
        remove_up_to(self._spool, None if frontier.finished else frontier.rows)

    def progress(self) -> SnapshotProgress:
        """Return the progress of the snapshot."""
        return self._meter.of(self._list, self._threads, self._first)

    # -- internal ------------------------------------------------------------------------------------------------

    def _connect(self, host: Endpoint) -> SnapshotConnection:
        pace = self._pace
        return TableConnection.open(self._config, host, statement_s=pace.statement_s, lock_wait_s=pace.lock_wait_s)

    def _connect_now(self) -> SnapshotConnection:
        """Connect to the current host; the watch moves to the next host after an error."""
        self._check()
        return self._connect(self._watch.host)

    def _ask(self, question: Callable[[SnapshotConnection], Answer]) -> Answer:
        return ask_with_retries(self._connect_now, question, self._config.connect_retry_s)

    def _wake(self) -> None:
        with self._list.changed:
            self._list.changed.notify_all()

    def _check(self) -> None:
        self._threads.check()
        self._watch.check()

    def _resume(self, frontier: Frontier) -> None:
        """Set the reading list to a frontier that may differ from the last returned one."""
        if frontier.rows != self._reached.rows and not frontier.done:
            self._names.relist(frontier)
        self._list.follow(dict(frontier.open))

    def _reconcilable(
        self, v: RelayHead, limit: ReadLimit
    ) -> tuple[list[tuple[ChunkRun, TableReading]], list[TableReading], list[TableReading]]:
        """Return the chunks that can be reconciled with `v` within the limit, the tables that do not exist, and the
        tables to read again.
        """
        deliverable = self._list.deliverable()
        candidates, absent = choose_chunks(self._view, deliverable, v, limit)
        taken = []
        if candidates:
            self._reconciler.load_window([group for group, _ in candidates], v.location)
        later: list[TableReading] = []
        outdated: list[TableReading] = []
        forward: list[TableReading] = []
        for group, table in candidates:
            if any(one.name == table.name for one in (*later, *outdated, *forward)):
                continue  # a later lane must wait for a lane that does not fit
            fit = self._reconciler.fit(group, v.location)
            if fit is ReconcileResult.FITS:
                taken.append((group, table))
            elif fit is ReconcileResult.AGAIN:
                outdated.append(table)
            elif fit is ReconcileResult.FORWARD:
                forward.append(table)
            elif fit is ReconcileResult.UNSETTLED:
                self._retries.retry_settled(table, self._reconciler.last_change(group))
            else:
                later.append(table)
        if later:
            made = self._ranges.created_since(v.location)
            absent += [table for table in later if table.name in made]  # all of its rows are newer than `v`
        self.forward_only = tuple(table.name for table in forward)
        later += [table for table in deliverable if table.absent_at is not None]
        self.blocked_tables = (*self.forward_only, *(table.name for table in later if table not in absent))
        return taken, absent, outdated

    def _write(
        self,
        frontier: Frontier,
        v: RelayHead,
        taken: list[tuple[ChunkRun, TableReading]],
        absent: list[TableReading],
        transaction: LastTransaction | None,
    ) -> Advance | None:
        names = [table.name for table in absent] + [group.name for group, _ in taken]
        known = self._list.known()
        new = frontier.begin(name for name in known if name <= max(names)) if names else frontier
        writer = BatchWriter(self._spool, frontier.rows, transaction or transaction_at(self._view.log, v))
        ended = {table.name for table in absent}
        try:
            for group, table in taken:
                before = writer.rows
                try:
                    writer.write(group.name, self._reconciler.blocks(group, v.location))
                except DiskFullError as error:
                    raise named(error, group.name) from error
                except (BlockLostError, PartialRowError, UnlikeRowsError) as error:
                    writer.abandon()
                    self._retries.retry(table, error, v.location)
                    return None
                end = group.chunks[-1].end
                ended |= {group.name} if end is None else set()
                new = new.advance(group.name, end, writer.rows - before)
            new = new.without(table.name for table in absent)
            if ended.issuperset(known):
                new = new.finish()
            size = writer.size
            if writer.rows:
                writer.finish(BatchName(frontier, new, v.position))
            else:
                writer.abandon()
        except BaseException:
            writer.abandon()
            raise
        for group, table in taken:
            self._retries.forget(table)
            self._list.delivered(table, group.chunks)
        for table in absent:
            self._list.remove(table.name)
        if new.finished:
            self._reconciler.forget()
        self._reached = new
        refused = tuple((table.name, table.refused) for table in absent if table.refused)
        return Advance(new, new.rows - frontier.rows, size, refused)
