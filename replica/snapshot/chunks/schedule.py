"""The tables that are left to read, those that are being read, and the chunks that wait to be delivered.

In: names in order, chunks as threads have read them. Out: the table that a thread reads next; the chunks that can be
delivered, in order. What is read ahead is bounded, by count and by bytes; a table that is delivered as a whole has no
such limit but the disk. Thread-safe; nothing here does I/O.
"""

from __future__ import annotations

import bisect
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from replica.protocol.gtid import GtidPosition, covers
from replica.snapshot.chunks.table_reading import TableReading
from replica.snapshot.frontier import NOTHING
from replica.snapshot.rows.chunk import starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replica.protocol.gtid import Gtid
    from replica.relay_log.location import RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.rows.chunk import TableChunk

CHUNKS_AHEAD: Final = 256
"""Chunks that wait: mostly of small tables, each below spool.IN_MEMORY_BYTES."""
BYTES_AHEAD: Final = 512 << 20
"""The bytes that wait: some seconds of what Spark takes, and of what a chunk's window in the relay log grows by."""
TABLES_AHEAD: Final = 64
"""Tables that are begun and not delivered; those that are delivered in parts stand in the offset by name."""


class ReadingList:
    """All tables of a snapshot. Every method may be called by any thread.

    `named_at`: the position as of which the names are: a server that has not got there may not have such a table yet.
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
        self._made: dict[TableName, GtidPosition] = {}

    def add(self, names: Iterable[TableName], kept: Mapping[TableName, bytes] | None = None) -> None:
        """Add tables that are to be read, behind the keys of `kept`. Of those that are known already, one that was gone
        is read again; others, and those that cannot be read, are left alone.
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
        """Add tables that a statement made. One that was gone before that, or could not be read, is read again."""
        names = list(names)
        with self.changed:
            self._made |= dict.fromkeys(names, GtidPosition((made,)))
            for name in names:
                self._return_of(name, refused=True)
            self.add(names)

    def close(self) -> None:
        """Let no thread take another table, and drop all chunks."""
        with self.changed:
            self._closed = True
            for table in self._begun.values():
                table.drop_chunks()
            self.changed.notify_all()

    # -- what threads do -----------------------------------------------------------------------------------------

    def take(self, lower: RelayLocation, timeout_s: float) -> TableReading | None:
        """Return the table to read the next chunk of, which no other thread reads then; None: none within the time, or
        the relay log may have lost what a chunk with this lower position needs.
        """
        with self.changed:
            found = self._open_to(lower)
            if found is None and not self._closed:
                self.changed.wait(timeout_s)
                found = self._open_to(lower)
            if found is not None:
                found.lower = lower
            return found

    def put(self, table: TableReading, life: int, chunk: TableChunk, borders: Sequence[bytes] = ()) -> bool:
        """Add a chunk behind those that wait; return False where the reading began again meanwhile.

        `borders`: the rest is read in lanes that end at these keys, and the last one at the table's end.
        """
        with self.changed:
            table.lower = None
            taken = table.life == life and not self._closed
            table.failures = 0
            if taken:
                table.chunks.append(chunk)
                table.whole = not chunk.table.key.ordered
                table.ended = chunk.end == table.upto
                if chunk.end is not None:
                    table.kept = chunk.end
                    self._divide(table, borders)
            self.changed.notify_all()
        if not taken:
            chunk.drop()
        return taken

    def give_back(
        self, table: TableReading, *, gone: GtidPosition | None = None, life: int | None = None, refused: str = ""
    ) -> None:
        """Let another thread read the table on; `gone`: at this position it was not there any more, or counts as such
        because it cannot be read (`refused`).
        """
        with self.changed:
            table.lower = None
            if gone is not None and life == table.life:
                first = self._restarted(table)
                made = self._made.get(table.name)
                if refused or made is None or covers(gone, made):
                    first.gone, first.ended, first.refused = gone, True, refused
            self.changed.notify_all()

    def refuse(self, table: TableReading, life: int, why: str) -> None:
        """Do without what is left of a table, which cannot be read: for the delivery it is gone."""
        self.give_back(table, gone=GtidPosition(), life=life, refused=why)

    def rekey(self, table: TableReading, life: int) -> bool:
        """Take note that the key of a table was changed; tell whether a part of it was delivered by the one before.

        If so, nothing more of it is read until it is asked for from its first row on; else it begins again by itself.
        """
        with self.changed:
            table.lower = None
            if life == table.life:
                table = self._restarted(table)
                table.rekeyed = not starts(table.delivered)
            self.changed.notify_all()
            return table.rekeyed

    # -- what the delivery does ----------------------------------------------------------------------------------

    @property
    def rekeyed(self) -> tuple[TableName, ...]:
        """The tables that are not read on, because the key that a part of them was delivered by is gone."""
        with self.changed:
            return tuple(table.name for _, table in self._in_order() if table.rekeyed)

    def known(self) -> list[TableName]:
        """Return the names of all tables that are not delivered, in order."""
        with self.changed:
            return sorted({*self._names, *(name for name, _ in self._begun)})

    def deliverable(self) -> list[TableReading]:
        """Return the tables with chunks that can be delivered, and those that are gone, in order.

        Lanes follow each other; one comes only behind those that are read to their ends.
        """
        found, unended = [], None
        with self.changed:
            for (name, _), table in self._in_order():
                if name == unended:
                    continue
                if table.deliverable or table.gone is not None:
                    found.append(table)
                unended = None if table.ended else name
        return found

    @property
    def finished(self) -> bool:
        """Whether no table is left."""
        with self.changed:
            return not self._names and not self._begun

    def comes(self, lower: RelayLocation) -> bool:
        """Tell whether more of a table is read while the lower position is this one: not where each is read to its end,
        gone, has another key, or waits for a later one.
        """
        with self.changed:
            return bool(self._names) or any(
                not (table.ended or table.rekeyed) and (table.busy or table.may_be_read(lower))
                for table in self._begun.values()
            )

    @property
    def all_begun(self) -> bool:
        """Whether a thread has begun every table."""
        with self.changed:
            return not self._names

    def delivered(self, table: TableReading, chunks: Sequence[TableChunk]) -> None:
        """Take the first chunks of a table away, and the table with its last one.

        A thread may have had the table begin again while a batch took them: then it begins behind them.
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

    def leave(self, name: TableName) -> None:
        """Take away a table of which nothing is to be delivered any more."""
        with self.changed:
            self._delivered_up_to(name, None)
            self.changed.notify_all()

    def read_again(
        self, table: TableReading, *, kept: bytes | None = None, not_before: RelayLocation | None = None
    ) -> None:
        """Drop the chunks of a table: it is read again behind what is delivered, or behind `kept`."""
        with self.changed:
            self._restarted(table, kept, not_before)
            self.changed.notify_all()

    def follow(self, opened: Mapping[TableName, bytes]) -> None:
        """Bring the tables to what a frontier says is delivered of them, where that is not what was delivered."""
        with self.changed:
            for name, kept in opened.items():
                self._delivered_up_to(name, kept)
            self.changed.notify_all()

    def needed_from(self, *others: RelayLocation | None) -> RelayLocation | None:
        """Return the first place of the relay log that is needed: what lies before it may be removed.

        That is the first place of chunks that wait, of those that are being read, and of `others`, the places that the
        caller knows of; None among them is not known. It never goes back: files before an earlier answer may have been
        removed, and no table is taken with a lower position there.
        """
        with self.changed:
            places = [chunk.lower for table in self._begun.values() for chunk in table.chunks]
            places += [
                place for place in (*others, *(table.lower for table in self._begun.values())) if place is not None
            ]
            if places and (self._needed is None or min(places) > self._needed):
                self._needed = min(places)
            return self._needed

    def state(self) -> tuple[int, list[TableReading]]:
        """Return how many tables are not begun, and those that are, in order."""
        with self.changed:
            return len(self._names), [table for _, table in self._in_order()]

    # -- inside --------------------------------------------------------------------------------------------------

    def _open_to(self, lower: RelayLocation) -> TableReading | None:
        lost = self._needed is not None and lower < self._needed
        return None if self._closed or lost else self._next(lower)

    def _next(self, lower: RelayLocation) -> TableReading | None:
        """Return the next table; one that could not be read comes behind all that can be."""
        tables = [table for _, table in self._in_order()]
        full = (
            sum(len(table.chunks) for table in tables if not table.whole) >= CHUNKS_AHEAD
            or sum(table.waiting for table in tables) >= BYTES_AHEAD
        )
        failing: list[TableReading] = []
        for table in tables:
            free = not (table.busy or table.ended or table.rekeyed)
            if free and (table.whole or not full or self._is_waited_for(table)) and table.may_be_read(lower):
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
        """Bring a table to what is delivered of it: all up to this key; None: all of it."""
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
        """Begin a table again that was gone and is there again; `refused`: also where it could not be read."""
        for table in self._lanes(name):
            if table.gone is not None and (refused or not table.refused):
                table.reset(table.delivered, None)

    def _in_order(self) -> list[tuple[tuple[TableName, int], TableReading]]:
        return sorted(self._begun.items(), key=lambda item: item[0])

    def _divide(self, table: TableReading, borders: Sequence[bytes]) -> None:
        if not borders or table.ended or table.whole:
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
        """Tell whether lanes that were read ahead cannot be delivered before this one."""
        lanes = self._lanes(table.name)
        return len(lanes) > 1 and lanes[0] is table and not table.chunks

    def _undivided(self, table: TableReading) -> TableReading:
        """Make one of the lanes of a table, the first of those that are left."""
        first, *others = self._lanes(table.name) or [table]
        for other in others:
            other.drop_chunks()
            other.life += 1
            del self._begun[other.name, other.lane]
        if self._begun.pop((first.name, first.lane), None) is not None:
            first.lane = 0  # lanes that it is divided into later come behind it
            self._begun[first.name, 0] = first
        first.upto = None
        return first

    def _restarted(
        self, table: TableReading, kept: bytes | None = None, not_before: RelayLocation | None = None
    ) -> TableReading:
        """Begin a table again, in one lane, behind what is delivered or behind `kept`; return that lane."""
        first = self._undivided(table)
        first.reset(first.delivered if kept is None else kept, not_before)
        return first
