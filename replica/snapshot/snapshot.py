"""The tables of a query, read beside its stream: what is delivered of them holds at the position of each batch.

In: the relay log as it is written, the selection, the frontier that a checkpoint holds. Out: for each batch, the
frontier it ends at, and its rows as parts of files, moved to the batch's position; the same again after any restart,
from the files, or read again from the tables. Reading goes on in threads meanwhile. What ended them is raised by every
method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import DiskFullError
from replica.relay_log.walks.xa import prepared_at
from replica.snapshot.chunks.choice import ALL, choose_chunks
from replica.snapshot.chunks.names import FirstNames, FollowedNames
from replica.snapshot.chunks.schedule import ReadingList
from replica.snapshot.chunks.threads import ReadingThreads
from replica.snapshot.chunks.unmoved_tables import UnmovedTables
from replica.snapshot.connection.asking import asked
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.errors import named
from replica.snapshot.frontier import Frontier
from replica.snapshot.images.partial_rows import PartialRowError
from replica.snapshot.progress import ProgressMeter
from replica.snapshot.reconcile.reconciler import BlockLostError, ChunkReconciler, ChunkRun, ReconcileResult
from replica.snapshot.reconcile.whole_rows import UnlikeRowsError
from replica.snapshot.reread import RangeReader
from replica.snapshot.spool.batches import BatchName, BatchWriter, find_batch, remove_up_to
from replica.snapshot.spool.spool import Spool
from replica.snapshot.spool.transaction import transaction_at
from replica.snapshot.watermark.low import LowWatermark
from replica.snapshot.watermark.primary import TEN_SECONDS
from replica.snapshot.watermark.watch import SourceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from replica.options.config import ReplicaConfig
    from replica.options.values import Endpoint
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.choice import ReadLimit
    from replica.snapshot.chunks.table_reading import TableReading
    from replica.snapshot.connection.asking import Answer, SnapshotConnection
    from replica.snapshot.log_view import LogView
    from replica.snapshot.pace import Pace
    from replica.snapshot.progress import SnapshotProgress
    from replica.snapshot.spool.batches import SpoolPart
    from replica.snapshot.spool.events import LastTransaction


class Advance(NamedTuple):
    """The outcome of planning a batch: the frontier it ends at, and how much that is. Tables may be empty. `refused`:
    tables that are left out from here on because they cannot be read, with the reason.
    """

    frontier: Frontier
    rows: int
    size: int
    refused: tuple[tuple[TableName, str], ...] = ()


class TableSnapshot:
    """The tables of one query. Its methods are for one thread; what they raise ends the query.

    `held_back`: tables whose chunks the last `advance` could not move, because a statement behind its position changed
    them, and those that were found to be gone behind it: a later position can be had, that one never. `forward_only`:
    those of them whose row images lack columns there (binlog_row_image), so that no change can be taken back.

    `selection` tells of a database and a table whether its rows are wanted. `age_s`: how old a place of the binlog has
    to be before all of it counts as committed; tests make it shorter.
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
        self._mover = ChunkReconciler(view.log, self._spool, untold_again=pace.untold_again)
        hosts = config.endpoints if pace.host is None else (pace.host,)
        self._watch = SourceWatch(
            *(config, pace, hosts),
            lambda host: LowWatermark(config, host, view.log, age_s=age_s, replica=pace.host is not None),
            self._connect,
            on_change=self._wake,
        )
        self._threads = ReadingThreads(config, pace, self._list, self._spool, self._watch, self._connect)
        self._ranges = RangeReader(
            config, pace, view, self._spool, self._mover, self._watch, self._connect, self._wanted
        )
        self._names = FollowedNames(*(view, self._list, self._wanted), self._ask, pace.host)
        self.held_back: tuple[TableName, ...] = ()
        self.forward_only: tuple[TableName, ...] = ()
        self._unmoved = UnmovedTables(pace, self._list, self._mover)
        self._reached = Frontier()
        self._first = FirstNames(0, 0)
        self._began: RelayLocation | None = None
        self._needed: tuple[RelayLocation, RelayLocation] | None = None
        self._meter = ProgressMeter()

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, frontier: Frontier) -> None:
        """Begin to read what the frontier says is not delivered.

        Raises:
            ReplicaError: the server cannot be asked for its tables, or the folder cannot be used.
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
        """End all threads. The files of batches stay."""
        self._threads.close()
        self._watch.close()
        self._mover.forget()

    def keep_from(self) -> RelayLocation | None:
        """Return the place of the relay log from which on its files are needed; None: no place is known yet.

        Needed are: chunks that wait or are read, from what they surely see on; later ones, from the next lower position
        on, which is not before the log's end at the start; statements whose names are not followed yet; and the rows of
        transactions that are prepared there.
        """
        first = self._list.needed_from(self._watch.keep_from() or self._began, self._names.upto)
        if first is None:
            return None
        if self._needed is None or self._needed[0] != first:
            # Of a transaction that is prepared there the rows lie before.
            prepared = prepared_at(self._view.log, first)
            self._needed = first, min([first, *(group.location for group in prepared)])
        return self._needed[1]

    # -- what the planner asks -----------------------------------------------------------------------------------

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """Tables of which no more is read, because the key that a part of them was delivered by is gone."""
        return self._list.rekeyed

    def ready(self) -> bool:
        """Tell whether a batch would take rows, or finish.

        Raises:
            ReplicaError: the error that ended the threads.
        """
        self._check()
        return bool(self._list.deliverable()) or self._list.finished

    def more_comes(self, limit: ReadLimit) -> bool:
        """Tell whether a batch of this limit would take more rows if it waited: it is not full yet, and they are read.

        Raises:
            ReplicaError: the error that ended the threads.
        """
        self._check()
        seen = self._watch.seen
        if seen is None or not self._list.comes(seen.lower.location) or self._threads.waits_for:
            return False  # what is delivered may be what the rest waits for: the log goes on behind it
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
        """Move what was read to the position of a batch, and put it on disk.

        Args:
            frontier: where the batch begins.
            v: where it ends in the stream, a place of the relay log.
            limit: how much it takes.
            transaction: the last one of that position; None: it is looked up in the relay log.

        Returns:
            The frontier it ends at; None where nothing can be delivered now.

        Raises:
            DiskFullError: the rows do not fit on the disk; nothing was taken.
            ReplicaError: the error that ended the threads, or what moving the rows met.
        """
        self._check()
        if frontier.finished:
            return None
        self._resume(frontier)
        self._names.follow(frontier, v)
        taken, gone, again = self._fitting(v, limit)
        try:
            if not taken and not gone and not self._list.finished:
                return None
            return self._write(frontier, v, taken, gone, transaction)
        finally:
            for table in again:
                self._list.read_again(table, not_before=v.location)

    def parts(
        self,
        before: Frontier,
        after: Frontier,
        v: RelayHead,
        *,
        transaction: LastTransaction | None = None,
        without: Collection[TableName] = (),
    ) -> list[SpoolPart]:
        """Return the rows of a batch that was planned, by this process or an earlier one; it has none of `without`.

        Raises:
            DataLossError: its files are lost, and the tables were changed since so that they cannot be read again.
            ReplicaError: what reading them again met.
        """
        if after.rows == before.rows:
            return []
        name = BatchName(before, after, v.position)
        found = find_batch(self._spool.folder, name, ours=name.stem in self._spool.finished)
        return self._ranges.make(name, v, transaction, without) if found is None else found

    def release(self, frontier: Frontier) -> None:
        """Remove the files of all batches up to a frontier: they are committed. Behind the last one nothing is read."""
        if frontier.finished:
            self.close()
        remove_up_to(self._spool, None if frontier.finished else frontier.rows)

    def progress(self) -> SnapshotProgress:
        """Say how far it is."""
        return self._meter.of(self._list, self._threads, self._first)

    # -- inside --------------------------------------------------------------------------------------------------

    def _connect(self, host: Endpoint) -> SnapshotConnection:
        pace = self._pace
        return TableConnection.open(self._config, host, statement_s=pace.statement_s, lock_wait_s=pace.lock_wait_s)

    def _connect_now(self) -> SnapshotConnection:
        """Connect to the host whose turn it is; the watch goes on to the next one where it cannot be asked."""
        self._check()
        return self._connect(self._watch.host)

    def _ask(self, question: Callable[[SnapshotConnection], Answer]) -> Answer:
        return asked(self._connect_now, question, self._config.connect_retry_s)

    def _wake(self) -> None:
        with self._list.changed:
            self._list.changed.notify_all()

    def _check(self) -> None:
        self._threads.check()
        self._watch.check()

    def _resume(self, frontier: Frontier) -> None:
        """Bring the list to a frontier that is not the one that was returned last."""
        if frontier.rows != self._reached.rows and not frontier.done:
            self._names.list_again(frontier)
        self._list.follow(dict(frontier.open))

    def _fitting(
        self, v: RelayHead, limit: ReadLimit
    ) -> tuple[list[tuple[ChunkRun, TableReading]], list[TableReading], list[TableReading]]:
        """Return the chunks that hold at `v` once they are moved, within the limit; tables that are not there; and
        tables that are to be read again.
        """
        deliverable = self._list.deliverable()
        candidates, gone = choose_chunks(self._view, deliverable, v, limit)
        taken = []
        if candidates:
            self._mover.look([group for group, _ in candidates], v.location)
        later: list[TableReading] = []
        again: list[TableReading] = []
        forward: list[TableReading] = []
        for group, table in candidates:
            if any(one.name == table.name for one in (*later, *again, *forward)):
                continue  # a lane behind one that does not fit
            fit = self._mover.fit(group, v.location)
            if fit is ReconcileResult.FITS:
                taken.append((group, table))
            elif fit is ReconcileResult.AGAIN:
                again.append(table)
            elif fit is ReconcileResult.FORWARD:
                forward.append(table)
            elif fit is ReconcileResult.UNSETTLED:
                self._unmoved.read_settled(table, self._mover.last_change(group))
            else:
                later.append(table)
        if later:
            made = self._ranges.made_since(v.location)
            gone += [table for table in later if table.name in made]  # none of its rows is older than `v`
        self.forward_only = tuple(table.name for table in forward)
        later += [table for table in deliverable if table.gone is not None]
        self.held_back = (*self.forward_only, *(table.name for table in later if table not in gone))
        return taken, gone, again

    def _write(
        self,
        frontier: Frontier,
        v: RelayHead,
        taken: list[tuple[ChunkRun, TableReading]],
        gone: list[TableReading],
        transaction: LastTransaction | None,
    ) -> Advance | None:
        names = [table.name for table in gone] + [group.name for group, _ in taken]
        known = self._list.known()
        new = frontier.begin(name for name in known if name <= max(names)) if names else frontier
        writer = BatchWriter(self._spool, frontier.rows, transaction or transaction_at(self._view.log, v))
        ended = {table.name for table in gone}
        try:
            for group, table in taken:
                before = writer.rows
                try:
                    writer.write(group.name, self._mover.blocks(group, v.location))
                except DiskFullError as error:
                    raise named(error, group.name) from error
                except (BlockLostError, PartialRowError, UnlikeRowsError) as error:
                    writer.abandon()
                    self._unmoved.read_better(table, error, v.location)
                    return None
                end = group.chunks[-1].end
                ended |= {group.name} if end is None else set()
                new = new.advance(group.name, end, writer.rows - before)
            new = new.without(table.name for table in gone)
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
            self._unmoved.forget(table)
            self._list.delivered(table, group.chunks)
        for table in gone:
            self._list.leave(table.name)
        if new.finished:
            self._mover.forget()
        self._reached = new
        refused = tuple((table.name, table.refused) for table in gone if table.refused)
        return Advance(new, new.rows - frontier.rows, size, refused)
