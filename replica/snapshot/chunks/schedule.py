"""Schedule of a snapshot: tables that are not started, tables that are being read, and chunks that wait for delivery.

`ReadingList` gives threads the next table to read, and gives the batch planner the chunks that it can deliver, in
order. Read-ahead is bounded by the number and bytes of chunks. A table that is delivered whole is bounded only by the
disk. All methods are thread-safe and do no I/O.
"""

from __future__ import annotations

import bisect
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.gtid import GtidPosition, covers
from replica.snapshot.chunks.table_reading import TableReading
from replica.snapshot.frontier import NOTHING
from replica.snapshot.reconcile.reconciler import ChunkRun
from replica.snapshot.rows.chunk import starts
from replica.snapshot.watermark.low import location_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replica.protocol.gtid import Gtid
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.rows.chunk import ReadTable, TableChunk
    from replica.snapshot.watermark.low import LogView

CHUNKS_AHEAD: Final = 256
"""Maximum number of waiting chunks. Most are of small tables, each below spool.IN_MEMORY_BYTES."""
BYTES_AHEAD: Final = 512 << 20
"""Maximum bytes of waiting chunks. Spark processes this amount in some seconds. Meanwhile, the relay log window of each
waiting chunk grows.
"""
TABLES_AHEAD: Final = 64
"""Maximum number of tables that are started and not delivered. The offset names each table that is partly delivered."""


class ReadingList:
    """All tables of a snapshot. Any thread may call any method.

    `named_at` is the position of the table names. A server that has not reached this position may lack some tables.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._names: list[TableName] = []
        self._kept: dict[TableName, bytes] = {}
        self._begun: dict[tuple[TableName, int], TableReading] = {}
        self._closed = False
        self._needed: RelayLocation | None = None
        self.total = 0
        self.named_at = GtidPosition()
        self._created_at: dict[TableName, GtidPosition] = {}

    def add(self, names: Iterable[TableName], kept: Mapping[TableName, bytes] | None = None) -> None:
        """Add tables to read after the keys in `kept`.

        A known table that did not exist before is restarted. Other known tables, and tables that cannot be read, do not
        change.
        """
        with self.changed:
            for name in names:
                place = bisect.bisect_left(self._names, name)
                known = self._lanes(name) or (place < len(self._names) and self._names[place] == name)
                if known:
                    self._return_of(name)
                    continue
                self._names.insert(place, name)
                self.total += 1
                if kept is not None and kept.get(name):
                    self._kept[name] = kept[name]
            self.changed.notify_all()

    def make(self, names: Iterable[TableName], made: Gtid) -> None:
        """Add tables that the transaction `made` created. A table that did not exist before, or could not be read, is
        restarted.
        """
        names = list(names)
        with self.changed:
            self._created_at |= dict.fromkeys(names, GtidPosition((made,)))
            for name in names:
                self._return_of(name, refused=True)
            self.add(names)

    def close(self) -> None:
        """Stop handing out tables, and drop all chunks."""
        with self.changed:
            self._closed = True
            for table in self._begun.values():
                table.drop_chunks()
            self.changed.notify_all()

    # -- for the reading threads ---------------------------------------------------------------------------------

    def take(self, low: RelayLocation, timeout_s: float) -> TableReading | None:
        """Return the table whose next chunk the calling thread has to read; no other thread gets the table meanwhile.

        Return None if there is no such table within `timeout_s` seconds. Also return None if the relay log may have
        lost events that a chunk with this low watermark needs.
        """
        with self.changed:
            found = self._open_to(low)
            if found is None and not self._closed:
                self.changed.wait(timeout_s)
                found = self._open_to(low)
            if found is not None:
                found.low = low
            return found

    def put(self, table: TableReading, life: int, chunk: TableChunk, borders: Sequence[bytes] = ()) -> bool:
        """Append a chunk to the waiting chunks; return False if the table was restarted during the read.

        `borders` divides the rest of the table into lanes. Each border ends one lane, and the last lane ends with the
        table.

        Args:
            table: Table, or lane of it, that the chunk was read from.
            life: `table.life` at the start of the read.
            chunk: Chunk that follows the last waiting chunk.
            borders: Kept keys in ascending order.
        """
        with self.changed:
            table.low = None
            taken = table.life == life and not self._closed
            table.failures = 0
            if taken:
                table.chunks.append(chunk)
                table.at_once = not chunk.table.key.ordered
                table.ended = chunk.end == table.upto
                if chunk.end is not None:
                    table.kept = chunk.end
                    self._divide(table, borders)
            self.changed.notify_all()
        if not taken:
            chunk.drop()
        return taken

    def give_back(
        self, table: TableReading, *, absent_at: GtidPosition | None = None, life: int | None = None, refused: str = ""
    ) -> None:
        """Release a table so that another thread can continue it.

        Args:
            table: The table.
            absent_at: Position at which the table did not exist. An unreadable table counts as one that does not exist.
            life: Life of the table to which `absent_at` applies.
            refused: Why the table cannot be read.
        """
        with self.changed:
            table.low = None
            if absent_at is not None and life == table.life:
                first = self._restarted(table)
                made = self._created_at.get(table.name)
                if refused or made is None or covers(absent_at, made):
                    first.absent_at, first.ended, first.refused = absent_at, True, refused
            self.changed.notify_all()

    def refuse(self, table: TableReading, life: int, why: str) -> None:
        """Skip the rest of a table that cannot be read.

        The batch planner then treats the table as one that does not exist. `life` is the table's life at the start of
        the read, and `why` is the reason for users.
        """
        self.give_back(table, absent_at=GtidPosition(), life=life, refused=why)

    def rekey(self, table: TableReading, life: int) -> bool:
        """Record a change of the table's key; return True if a part of the table was delivered by the old key.

        In that case the table is not read until a caller requests it from its first row. Otherwise the table is
        restarted. `life` is the table's life at the start of the read.
        """
        with self.changed:
            table.low = None
            if life == table.life:
                table = self._restarted(table)
                table.rekeyed = not starts(table.delivered)
            self.changed.notify_all()
            return table.rekeyed

    # -- for the batch planner -----------------------------------------------------------------------------------

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """Tables that are not read any more because the key of their delivered part has changed."""
        with self.changed:
            return tuple(table.name for _, table in self._in_order() if table.rekeyed)

    def known(self) -> list[TableName]:
        """Return the names of all tables that are not delivered, in order."""
        with self.changed:
            return sorted({*self._names, *(name for name, _ in self._begun)})

    def deliverable(self) -> list[TableReading]:
        """Return the tables with deliverable chunks and the tables that do not exist any more, in order.

        A lane follows only after all earlier lanes of its table are read to their ends.
        """
        found, unended = [], None
        with self.changed:
            for (name, _), table in self._in_order():
                if name == unended:
                    continue
                if table.deliverable or table.absent_at is not None:
                    found.append(table)
                unended = None if table.ended else name
        return found

    @property
    def finished(self) -> bool:
        """Whether no table is left."""
        with self.changed:
            return not self._names and not self._begun

    def may_yield(self, low: RelayLocation) -> bool:
        """Return True if more rows will be read while the low watermark is `low`.

        A table that is read to its end, does not exist, has a changed key or waits for a later watermark adds no rows.
        """
        with self.changed:
            return bool(self._names) or any(
                not (table.ended or table.rekeyed) and (table.busy or table.may_be_read(low))
                for table in self._begun.values()
            )

    @property
    def all_begun(self) -> bool:
        """Whether a thread has started every table."""
        with self.changed:
            return not self._names

    def delivered(self, table: TableReading, chunks: Sequence[TableChunk]) -> None:
        """Remove the first chunks of a table, which were delivered, and the table itself after its last chunk.

        If a thread restarted the table while a batch took the chunks, the table continues after the last delivered
        chunk.
        """
        end = chunks[-1].end
        with self.changed:
            if not table.begins_with(chunks):
                self._delivered_up_to(table.name, end)
            elif end == table.upto:
                table.drop_chunks()
                del self._begun[table.name, table.lane]
            else:
                for _ in chunks:
                    table.chunks.popleft().drop()
                table.delivered = end or table.delivered
            self.changed.notify_all()

    def remove(self, name: TableName) -> None:
        """Remove a table that needs no more delivery."""
        with self.changed:
            self._delivered_up_to(name, None)
            self.changed.notify_all()

    def restart(
        self, table: TableReading, *, kept: bytes | None = None, not_before: RelayLocation | None = None
    ) -> None:
        """Drop the chunks of a table, and read the table again after the delivered part.

        Args:
            table: The table.
            kept: Kept key after which to read instead of the delivered part.
            not_before: Low watermark that the next read needs at least.
        """
        with self.changed:
            self._restarted(table, kept, not_before)
            self.changed.notify_all()

    def follow(self, opened: Mapping[TableName, bytes]) -> None:
        """Set the delivered keys of tables to the keys in a frontier, if they differ."""
        with self.changed:
            for name, kept in opened.items():
                self._delivered_up_to(name, kept)
            self.changed.notify_all()

    def needed_from(self, *others: RelayLocation | None) -> RelayLocation | None:
        """Return the first relay log location that the snapshot needs; the relay log may remove everything before it.

        The location is the minimum over waiting chunks, chunks being read, and the caller's locations in `others` (None
        is unknown). It never goes back: earlier files may be removed already, and `take` rejects a low watermark before
        it.
        """
        with self.changed:
            places = [chunk.low for table in self._begun.values() for chunk in table.chunks]
            places += [
                place for place in (*others, *(table.low for table in self._begun.values())) if place is not None
            ]
            if places and (self._needed is None or min(places) > self._needed):
                self._needed = min(places)
            return self._needed

    def state(self) -> tuple[int, list[TableReading]]:
        """Return the number of tables that are not started, and the started tables in order."""
        with self.changed:
            return len(self._names), [table for _, table in self._in_order()]

    # -- internal ------------------------------------------------------------------------------------------------

    def _open_to(self, low: RelayLocation) -> TableReading | None:
        lost = self._needed is not None and low < self._needed
        return None if self._closed or lost else self._next(low)

    def _next(self, low: RelayLocation) -> TableReading | None:
        """Return the next table; tables that failed come after all others."""
        tables = [table for _, table in self._in_order()]
        full = (
            sum(len(table.chunks) for table in tables if not table.at_once) >= CHUNKS_AHEAD
            or sum(table.waiting for table in tables) >= BYTES_AHEAD
        )
        failing: list[TableReading] = []
        for table in tables:
            free = not (table.busy or table.ended or table.rekeyed)
            if free and (table.at_once or not full or self._is_waited_for(table)) and table.may_be_read(low):
                if not table.failures:
                    return table
                failing.append(table)
        if full or not self._names or len({table.name for table in tables}) >= TABLES_AHEAD:
            return min(failing, key=lambda table: table.failures, default=None)
        name = self._names.pop(0)
        kept = self._kept.pop(name, NOTHING)
        table = self._begun[name, 0] = TableReading(name, kept=kept, delivered=kept)
        return table

    def _delivered_up_to(self, name: TableName, kept: bytes | None) -> None:
        """Set the delivered part of a table to all rows up to `kept`; None means the whole table."""
        lanes = self._lanes(name)
        if kept is None:
            for lane in lanes:
                lane.drop_chunks()
                lane.life += 1
                del self._begun[name, lane.lane]
        elif lanes:
            if lanes[0].delivered != kept:
                self._restarted(lanes[0], kept)
        elif self._kept.get(name, NOTHING) != kept or name not in self._names:
            self._kept[name] = kept
            if name not in self._names:
                bisect.insort(self._names, name)
                self.total += 1

    def _return_of(self, name: TableName, *, refused: bool = False) -> None:
        """Start a table again if it exists again; `refused` includes a table that could not be read."""
        for table in self._lanes(name):
            if table.absent_at is not None and (refused or not table.refused):
                table.reset(table.delivered, None)

    def _in_order(self) -> list[tuple[tuple[TableName, int], TableReading]]:
        return sorted(self._begun.items(), key=lambda item: item[0])

    def _divide(self, table: TableReading, borders: Sequence[bytes]) -> None:
        if not borders or table.ended or table.at_once:
            return
        for number, (begin, end) in enumerate(pairwise([*borders, None]), 1):
            kept = begin or NOTHING
            lane = TableReading(table.name, number, end, divided=True, kept=kept, delivered=kept)
            lane.next_rows = table.next_rows
            self._begun[table.name, number] = lane
        table.upto = borders[0]

    def _lanes(self, name: TableName) -> list[TableReading]:
        return [table for (one, _), table in self._in_order() if one == name]

    def _is_waited_for(self, table: TableReading) -> bool:
        """Return True if this is the first lane and later lanes wait for it."""
        lanes = self._lanes(table.name)
        return len(lanes) > 1 and lanes[0] is table and not table.chunks

    def _undivided(self, table: TableReading) -> TableReading:
        """Merge the lanes of a table into the first remaining one."""
        first, *others = self._lanes(table.name) or [table]
        for other in others:
            other.drop_chunks()
            other.life += 1
            del self._begun[other.name, other.lane]
        if self._begun.pop((first.name, first.lane), None) is not None:
            first.lane = 0  # lanes of a later division get higher numbers
            self._begun[first.name, 0] = first
        first.upto = None
        return first

    def _restarted(
        self, table: TableReading, kept: bytes | None = None, not_before: RelayLocation | None = None
    ) -> TableReading:
        """Start a table again in one lane after its delivered part, or after `kept`; return that lane."""
        first = self._undivided(table)
        first.reset(first.delivered if kept is None else kept, not_before)
        return first


# `choose_chunks` does not check whether a run can be reconciled with the batch position; `ChunkReconciler.fit` does.


BATCH_BYTES: Final = 256 << 20
"""Default limit of the waiting chunks that one batch takes, in bytes."""


class ReadLimit(NamedTuple):
    """Maximum rows and bytes of snapshot chunks in one batch. A batch takes at least one chunk, even a larger one."""

    rows: int | None = None
    size: int | None = None

    @property
    def most_bytes(self) -> int:
        """Limit in bytes."""
        return BATCH_BYTES if self.size is None else self.size


ALL: Final = ReadLimit()


def choose_chunks(
    view: LogView, tables: Iterable[TableReading], v: RelayHead, limit: ReadLimit
) -> tuple[list[tuple[ChunkRun, TableReading]], list[TableReading]]:
    """Return the chunks that a batch up to `v` may take of these tables, and the tables that do not exist at `v`.

    Args:
        view: Relay log.
        tables: Tables with deliverable chunks, in order.
        v: Batch position, a location of the relay log.
        limit: Maximum rows and bytes of the batch.
    """
    rows, size = limit.rows, limit.most_bytes
    chosen: list[tuple[ChunkRun, TableReading]] = []
    absent = []
    definitions: dict[TableName, ReadTable] = {}
    stopped: set[TableName] = set()  # later lanes of these tables have to wait
    for table in tables:
        if table.name in stopped:
            continue
        if table.absent_at is not None:
            if covers(v.position, table.absent_at):
                absent.append(table)
            continue
        chunks: list[TableChunk] = []
        for chunk in list(table.chunks):
            fits = (rows is None or chunk.rows <= rows) and chunk.size <= size
            first = not (chunks or chosen)
            if not (fits or first or table.at_once) or (chunks and chunk.table != chunks[0].table):
                break
            if chunks and not (table.at_once or _is_received(view, chunk, v)):
                break  # a full relay log reaches the chunk's position after this batch frees a part of the log
            chunks.append(chunk)
            rows, size = None if rows is None else rows - chunk.rows, size - chunk.size
        high = _high_watermark(view, chunks, v) if chunks else None
        if high is not None and definitions.setdefault(table.name, chunks[0].table) == chunks[0].table:
            chosen.append((ChunkRun(table.name, tuple(chunks), high, shown_before(view, chunks)), table))
            if len(chunks) == len(table.chunks):
                continue
        stopped.add(table.name)
    return chosen, absent


def shown_before(view: LogView, chunks: Sequence[TableChunk]) -> RelayLocation | None:
    """Return a relay log location after every change that the rows of a table without a key may contain.

    Return None for a table with a key, and if the relay log has not reached that location.
    """
    (first, *_) = chunks
    return location_after(view, first.shown or first.high) if first.table.key.is_row else None


def _is_received(view: LogView, chunk: TableChunk, v: RelayHead) -> bool:
    """Return True if the relay log has reached the position at which a chunk was read."""
    return covers(v.position, chunk.high) or covers(view.head().position, chunk.high)


def _high_watermark(view: LogView, chunks: Sequence[TableChunk], v: RelayHead) -> RelayLocation | None:
    """Return a relay log location after all reads of these chunks; None if the relay log does not reach so far."""
    unreached = {chunk.high for chunk in chunks if not covers(v.position, chunk.high)}
    if not unreached:
        return v.location
    last = max(unreached, key=lambda position: sum(gtid.seq_no for gtid in position))
    if all(covers(last, position) for position in unreached):
        unreached = {last}  # each look-up of a location takes milliseconds
    places = [location_after(view, position) for position in unreached]
    return None if None in places else max(v.location, *(place for place in places if place is not None))
