"""Recreation of a batch's lost spool files: the same rows in the same order, as of the batch position.

`RangeReader.make` takes the batch's frontiers and position. It reads the current rows of the key ranges and undoes the
changes after the batch position. If DDL changed a table after the batch position, its old rows do not exist any more.
Then the batch is lost. A caller that handles errors table by table (`Pace.table_by_table`) loses only that table's
rows. If the number of rows differs, it is not known which table lacks them, so those of all tables are lost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import DataLossError, KeyChangedError, ReplicaError
from replica.relay_log.walks.ddl import statements_between
from replica.schema.effects.effect import outline_of
from replica.schema.patterns import table_text
from replica.snapshot.check.catalog import list_tables
from replica.snapshot.chunks.reader import ChunkReader, LaggingServerError, Wanted
from replica.snapshot.chunks.schedule import shown_before
from replica.snapshot.errors import concerns_only_table, named, needs_new_definition, passes
from replica.snapshot.frontier import NOTHING
from replica.snapshot.images.key_states import PartialRowError
from replica.snapshot.pace import MOST_UNSETTLED
from replica.snapshot.reconcile.reconciler import BlockLostError, ChunkRun, ReconcileResult
from replica.snapshot.reconcile.whole_rows import UnlikeRowsError, unsettled_error
from replica.snapshot.reconcile.window import location_at
from replica.snapshot.rows.chunk import FIRST_ROWS
from replica.snapshot.spool.batches import BatchWriter
from replica.snapshot.spool.spool import transaction_at
from replica.snapshot.watermark.low import await_position, location_after

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from replica.options.config import ReplicaConfig
    from replica.options.values import Endpoint
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.connection.connection import SnapshotConnection
    from replica.snapshot.pace import Pace
    from replica.snapshot.reconcile.reconciler import ChunkReconciler
    from replica.snapshot.rows.chunk import TableChunk
    from replica.snapshot.spool.batches import BatchName, SpoolPart
    from replica.snapshot.spool.events import LastTransaction
    from replica.snapshot.spool.spool import Spool
    from replica.snapshot.watermark.low import LogView
    from replica.snapshot.watermark.watch import Seen, SourceWatch

POLL_S: Final = 0.05
"""Interval in seconds at which the low watermark and the relay log are polled."""

Range = tuple["TableName", bytes, bytes | None]
"""Table, kept key before the first row of the batch, and kept key of the last row; None for the table's end."""


class Recreated(NamedTuple):
    """Rows of a lost batch. `lost`: tables whose rows cannot be read again, each with the reason."""

    parts: list[SpoolPart]
    lost: dict[TableName, str]


class RangeReader:
    """Reader that recreates lost batches, in the caller's thread and over its own connection."""

    def __init__(
        self,
        config: ReplicaConfig,
        pace: Pace,
        view: LogView,
        spool: Spool,
        reconciler: ChunkReconciler,
        watch: SourceWatch,
        connect: Callable[[Endpoint], SnapshotConnection],
        wanted: Callable[[TableName], bool],
    ) -> None:
        self._config = config
        self._pace = pace
        self._view = view
        self._spool = spool
        self._reconciler = reconciler
        self._watch = watch
        self._connect = connect
        self._wanted = wanted

    def make(
        self, name: BatchName, v: RelayHead, transaction: LastTransaction | None, without: Collection[TableName] = ()
    ) -> Recreated:
        """Read the rows of a batch again.

        Args:
            name: Start frontier and end frontier of the batch, and its position.
            v: Batch position, a location of the relay log.
            transaction: Last transaction at the batch position; None to look it up in the relay log.
            without: Tables of which the batch has no rows.

        Raises:
            DataLossError: The rows cannot be recreated, and errors are not handled table by table.
            ReplicaError: Any other error of the read.
        """
        self._spool.open()
        transaction = transaction or transaction_at(self._view.log, v)
        deadline = time.monotonic() + self._config.reconnect_retry_s
        lost: dict[TableName, str] = {}
        failed = unsettled = 0
        while True:
            try:
                parts = self._attempt(name, v, transaction, without, lost, failed)
                if parts is not None:
                    return Recreated(parts, lost)
            except (LaggingServerError, BlockLostError, _RereadError):
                pass
            except _UnsettledError as error:
                unsettled += 1
                if unsettled < MOST_UNSETTLED:
                    self._await_settled(error.place)
                else:
                    self._lose_unsettled(lost, error.name)
                    unsettled = 0
            except ReplicaError as error:
                failed += 1
                if not (passes(error) or needs_new_definition(error, failed)) or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)

    def _attempt(
        self,
        name: BatchName,
        v: RelayHead,
        transaction: LastTransaction,
        without: Collection[TableName],
        lost: dict[TableName, str],
        failed: int,
    ) -> list[SpoolPart] | None:
        """Read the rows once and return their parts; None if tables were added to `lost`, without which the next
        attempt has to read.
        """
        writer = BatchWriter(self._spool, name.before.rows, transaction)
        connection = None
        try:
            host = self._watch.host
            connection = self._connect(host)
            await_position(connection, v.position, host, self._view)  # a lagging replica may lack some tables
            seen = self._await_watermark(host)
            found = self._write_all(writer, connection, seen, name, v, {*without, *lost}, failed)
            if self._lose(lost, found, name.after.rows - name.before.rows, writer.rows):
                writer.abandon()  # it may have rows of the lost tables
                return None
            return writer.finish(name, complete=not lost)
        except BaseException:
            writer.abandon()
            raise
        finally:
            self._reconciler.forget()
            if connection is not None:
                connection.close()

    def _lose(self, lost: dict[TableName, str], found: _Written, delivered: int, rows: int) -> bool:
        """Add the tables that one attempt has lost, and return True if there are any.

        Args:
            lost: Tables lost before, with the reasons.
            found: Result of the attempt.
            delivered: Number of rows of the batch.
            rows: Number of rows that the attempt found.

        Raises:
            DataLossError: Errors are not handled table by table.
        """
        new = dict(found.lost)
        if lost or new:
            new |= found.gone  # the number of rows cannot show whether these tables had any
        elif found.complete and rows != delivered:
            why = f"{delivered} rows were delivered, and {rows} were found now"
            new = found.gone or dict.fromkeys(found.tables, why)
        if new and not self._pace.table_by_table:
            raise DataLossError(
                "The files with the rows of a batch are lost, and the same rows cannot be read again: "
                f"{'; '.join(dict.fromkeys(new.values()))}.",
                hint="Start with a new checkpoint, or restore the folder. Committed batches are not affected.",
            )
        lost |= new
        return bool(new)

    def _lose_unsettled(self, lost: dict[TableName, str], table: TableName) -> None:
        """Add a table without a key that changes during every read."""
        error = unsettled_error(table, MOST_UNSETTLED)
        if not self._pace.table_by_table:
            raise error
        lost[table] = error.message

    def _ranges(
        self, name: BatchName, connection: SnapshotConnection, v: RelayHead
    ) -> tuple[list[Range], list[TableName]]:
        """Return the key ranges between two frontiers, in table order, and the tables that do not exist any more."""
        before, after = name.before, name.after
        opened = {table for table, _ in (*before.open, *after.open)}
        existing = set(list_tables(connection, self._wanted))
        names = opened
        if (before.after, before.done) != (after.after, after.done):
            made, touched = self._named_since(v.location)
            names = opened | {table for table in existing | touched if table not in made and self._wanted(table)}
        ranges = []
        for table in sorted(names):
            begin, end = before.reached(table), after.reached(table)
            if begin is not None and end not in (begin, NOTHING):
                ranges.append((table, begin, end))
        return [one for one in ranges if one[0] in existing], [one[0] for one in ranges if one[0] not in existing]

    def created_since(self, v: RelayLocation) -> set[TableName]:
        """Return the tables that were created after a location, under names that no table had there."""
        return self._named_since(v)[0]

    def _named_since(self, v: RelayLocation) -> tuple[set[TableName], set[TableName]]:
        """Return the tables created after a location, under names that no table had there, and all tables that
        statements after it name.
        """
        made: set[TableName] = set()
        touched: set[TableName] = set()
        for statement in statements_between(self._view.log, v, self._view.head().location):
            outline = outline_of(statement.query, statement.server)
            if outline is not None:
                if outline.creates:
                    made |= set(outline.defined) - touched
                touched |= set(outline.tables)
        return made, touched

    def _write_all(
        self,
        writer: BatchWriter,
        connection: SnapshotConnection,
        seen: Seen,
        name: BatchName,
        v: RelayHead,
        without: Collection[TableName],
        failed: int,
    ) -> _Written:
        """Write the rows of all tables.

        A table is skipped if its key has changed and the batch does not complete it. A later batch delivers it from its
        first row.

        Args:
            writer: Writer of the batch.
            connection: Connection to the server.
            seen: Low watermark of the server.
            name: Identity of the batch.
            v: Batch position.
            without: Tables to leave out.
            failed: Number of failed attempts before this one.
        """
        ranges, gone = self._ranges(name, connection, v)
        tables: list[TableName] = []
        lost: dict[TableName, str] = {}
        complete = True
        for wanted in ranges:
            table = wanted[0]
            if table in without:
                continue
            tables.append(table)
            try:
                self._write(writer, connection, seen, wanted, v)
            except _LostRowsError as error:
                lost[table] = error.why
            except KeyChangedError as error:
                if not self._pace.table_by_table:
                    raise
                if name.after.reached(table) is None:
                    lost[table] = error.message
                complete = False
            except ReplicaError as error:
                if not (self._pace.table_by_table and concerns_only_table(error, failed + 1)):
                    raise
                lost[table] = named(error, table).message
        why = {table: f"table {table_text(table)} does not exist any more" for table in gone if table not in without}
        return _Written(tables, lost, why, complete)

    def _write(
        self, writer: BatchWriter, connection: SnapshotConnection, seen: Seen, wanted: Range, v: RelayHead
    ) -> None:
        chunks = self._chunks(connection, seen, wanted)
        try:
            if not chunks:
                return
            high = max(self._await_place(chunk, v) for chunk in chunks)
            if any(chunk.table != chunks[0].table for chunk in chunks):
                raise _RereadError
            group = ChunkRun(wanted[0], tuple(chunks), high, shown_before(self._view, chunks))
            self._reconciler.load_window([group], v.location)
            fit = self._reconciler.fit(group, v.location)
            if fit is ReconcileResult.LATER:
                raise _LostRowsError(f"a statement has changed table {table_text(wanted[0])} since then")
            if fit is ReconcileResult.AGAIN:
                raise _RereadError  # retry until the low watermark has passed the batch position
            if fit is ReconcileResult.UNSETTLED:
                raise _UnsettledError(wanted[0], self._reconciler.last_change(group))
            writer.write(group.name, self._reconciler.blocks(group, v.location))
        except UnlikeRowsError:
            raise _LostRowsError(
                f"rows of {table_text(wanted[0])}, which has no key, do not match the before images of its changes"
            ) from None
        except PartialRowError as error:
            if location_at(error.place) <= v.location:
                raise _RereadError from None  # retry for the same reason
            what = f"later row images of {table_text(wanted[0])} lack columns (binlog_row_image)"
            raise _LostRowsError(f"{what}, so that changes cannot be undone") from None
        finally:
            for chunk in chunks:
                chunk.drop()

    def _chunks(self, connection: SnapshotConnection, seen: Seen, wanted: Range) -> list[TableChunk]:
        name, begin, end = wanted
        reader = ChunkReader(self._connect, self._spool, self._pace)
        chunks: list[TableChunk] = []
        others: list[SnapshotConnection] = []
        rows = min(FIRST_ROWS, self._pace.chunk_rows)
        try:
            while True:
                read = reader.read(connection, Wanted(name, begin, end, rows), seen)
                if read.chunk is None:
                    return chunks
                chunks.append(read.chunk)
                rows = read.next_rows
                if read.chunk.end == end:
                    return chunks
                begin = read.chunk.end or NOTHING
                if not read.connected:
                    others.append(connection := self._connect(seen.host))
        except BaseException:
            for chunk in chunks:
                chunk.drop()
            raise
        finally:
            for other in others:
                other.close()

    def _await_watermark(self, host: Endpoint) -> Seen:
        """Return the low watermark of a host, as soon as it is known.

        Raises:
            _RereadError: The watch has moved to another host.
        """
        while (seen := self._watch.seen) is None or seen.host != host:
            self._watch.check()
            self._view.head()  # raises the error that ended the stream
            if self._watch.host != host:
                raise _RereadError
            time.sleep(POLL_S)
        return seen

    def _await_settled(self, place: RelayLocation) -> None:
        """Wait until the low watermark has reached a location."""
        while (seen := self._watch.seen) is None or seen.low.location < place:
            self._watch.check()
            self._view.head()  # raises the error that ended the stream
            time.sleep(POLL_S)

    def _await_place(self, chunk: TableChunk, v: RelayHead) -> RelayLocation:
        while True:
            place = location_after(self._view, chunk.high)
            if place is not None:
                return max(place, v.location)
            self._view.wait_for(chunk.high, POLL_S)


class _Written(NamedTuple):
    """Result of one attempt.

    Attributes:
        tables: All tables of the batch, except those to leave out.
        lost: Tables whose rows cannot be read again, with the reasons.
        gone: Tables that do not exist any more, with this reason. They may have had no row.
        complete: Whether no table was skipped.
    """

    tables: list[TableName]
    lost: dict[TableName, str]
    gone: dict[TableName, str]
    complete: bool


class _UnsettledError(Exception):
    """Rows without a key that changed during the read, last at `place`. This error never leaves this module."""

    def __init__(self, name: TableName, place: RelayLocation) -> None:
        super().__init__(name, place)
        self.name, self.place = name, place


class _RereadError(Exception):
    """Error for rows that do not fit together; another read may succeed. This error never leaves this module."""


class _LostRowsError(Exception):
    """Rows of one table that cannot be read again. This error never leaves this module."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
