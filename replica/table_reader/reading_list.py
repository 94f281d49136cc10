"""The tables that are left to read, those that are being read, and the chunks that wait to be delivered.

In: names in order, chunks as threads have read them. Out: the table that a thread reads next; the chunks that can be
delivered, in order. What is read ahead is bounded, by count and by bytes; a table that is delivered as a whole has no
such limit but the disk. Thread-safe; nothing here does I/O.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.table_reader.chunks import FIRST_ROWS, starts
from replica.table_reader.frontier import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.schema.known_tables import TableName
    from replica.table_reader.chunks import TableChunk

CHUNKS_AHEAD: Final = 256
"""Chunks that wait: mostly of small tables, each below spool.IN_MEMORY_BYTES."""
BYTES_AHEAD: Final = 512 << 20
"""The bytes that wait: some seconds of what Spark takes, and of what a chunk's window in the relay log grows by."""
TABLES_AHEAD: Final = 64
"""Tables that are begun and not delivered; those that are delivered in parts stand in the offset by name."""


@dataclass(slots=True)
class TableReading:
    """A table that is begun. `kept`: the key up to which it was read; `delivered`: up to which it is delivered.

    `life` counts how often its reading began again: what was read in an earlier life is thrown away. `not_before`: it
    is not read while the lower position lies before this place. `gone`: at this position there was no such table.
    `key`: the columns and types of its key, as of the last chunk.
    """

    name: TableName
    kept: bytes = NOTHING
    delivered: bytes = NOTHING
    next_rows: int = FIRST_ROWS
    busy: bool = False
    ended: bool = False
    life: int = 0
    not_before: RelayLocation | None = None
    gone: GtidPosition | None = None
    whole: bool = False
    key: tuple[tuple[str, str], ...] = ()
    chunks: deque[TableChunk] = field(default_factory=deque)

    @property
    def deliverable(self) -> bool:
        """Whether chunks of it can be delivered."""
        return bool(self.chunks) and (self.ended or not self.whole)

    @property
    def waiting(self) -> int:
        """The bytes of its chunks that count as read ahead."""
        return 0 if self.whole else sum(chunk.size for chunk in self.chunks)


class ReadingList:
    """All tables of a snapshot. Every method may be called by any thread."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._names: list[TableName] = []
        self._kept: dict[TableName, bytes] = {}
        self._begun: dict[TableName, TableReading] = {}
        self._closed = False
        self.total = 0

    def add(self, names: Iterable[TableName], kept: Mapping[TableName, bytes] | None = None) -> None:
        """Add tables that are to be read, behind the keys of `kept`; those that are known already are left alone."""
        with self.changed:
            for name in names:
                place = bisect.bisect_left(self._names, name)
                known = name in self._begun or (place < len(self._names) and self._names[place] == name)
                if known:
                    self._return_of(name)
                    continue
                self._names.insert(place, name)
                self.total += 1
                if kept is not None and kept.get(name):
                    self._kept[name] = kept[name]
            self.changed.notify_all()

    def close(self) -> None:
        """Let no thread take another table, and drop all chunks."""
        with self.changed:
            self._closed = True
            for table in self._begun.values():
                _drop_chunks(table)
            self.changed.notify_all()

    # -- what threads do -----------------------------------------------------------------------------------------

    def take(self, lower: RelayLocation, timeout_s: float) -> TableReading | None:
        """Return the table to read the next chunk of, which no other thread reads then; None: none within the time."""
        with self.changed:
            if self._closed:
                return None
            found = self._next(lower)
            if found is None:
                self.changed.wait(timeout_s)
                found = None if self._closed else self._next(lower)
            if found is not None:
                found.busy = True
            return found

    def put(self, table: TableReading, life: int, chunk: TableChunk) -> bool:
        """Add a chunk behind those that wait; return False where the reading began again meanwhile.

        Raises:
            SchemaError: its key is another one than the one that a part of the table was delivered by.
        """
        with self.changed:
            table.busy = False
            taken = table.life == life and not self._closed
            if taken:
                try:
                    _keep_key(table, chunk)
                except SchemaError:
                    chunk.stored.drop()
                    raise
                table.chunks.append(chunk)
                table.whole = not chunk.table.key.ordered
                table.ended = chunk.end is None
                if chunk.end is not None:
                    table.kept = chunk.end
            self.changed.notify_all()
        if not taken:
            chunk.stored.drop()
        return taken

    def give_back(self, table: TableReading, *, gone: GtidPosition | None = None, life: int | None = None) -> None:
        """Let another thread read the table on; `gone`: at this position it was not there any more."""
        with self.changed:
            table.busy = False
            if gone is not None and life == table.life:
                table.gone = gone
                table.ended = True
                table.life += 1
                _drop_chunks(table)
            self.changed.notify_all()

    # -- what the delivery does ----------------------------------------------------------------------------------

    def known(self) -> list[TableName]:
        """Return the names of all tables that are not delivered, in order."""
        with self.changed:
            return sorted([*self._names, *self._begun])

    def deliverable(self) -> list[TableReading]:
        """Return the tables with chunks that can be delivered, and those that are gone, in order."""
        with self.changed:
            return [table for _, table in sorted(self._begun.items()) if table.deliverable or table.gone is not None]

    @property
    def finished(self) -> bool:
        """Whether no table is left."""
        with self.changed:
            return not self._names and not self._begun

    @property
    def all_begun(self) -> bool:
        """Whether a thread has begun every table."""
        with self.changed:
            return not self._names

    def delivered(self, table: TableReading, chunks: int, *, ended: bool) -> None:
        """Take the first chunks of a table away; `ended`: nothing is left of it."""
        with self.changed:
            for _ in range(chunks):
                chunk = table.chunks.popleft()
                table.delivered = chunk.end or table.delivered
                chunk.stored.drop()
            if ended:
                self._begun.pop(table.name, None)
            self.changed.notify_all()

    def read_again(
        self, table: TableReading, *, kept: bytes | None = None, not_before: RelayLocation | None = None
    ) -> None:
        """Drop the chunks of a table: it is read again behind what is delivered, or behind `kept`."""
        with self.changed:
            self._reset(table, table.delivered if kept is None else kept, not_before)
            self.changed.notify_all()

    def follow(self, opened: Mapping[TableName, bytes]) -> None:
        """Bring the tables to what a frontier says is delivered of them, where that is not what was delivered."""
        with self.changed:
            for name, kept in opened.items():
                table = self._begun.get(name)
                if table is not None:
                    if table.delivered != kept:
                        self._reset(table, kept, None)
                elif self._kept.get(name, NOTHING) != kept or name not in self._names:
                    self._kept[name] = kept
                    if name not in self._names:
                        bisect.insort(self._names, name)
                        self.total += 1
            self.changed.notify_all()

    def state(self) -> tuple[int, list[TableReading]]:
        """Return how many tables are not begun, and those that are, in order."""
        with self.changed:
            return len(self._names), [table for _, table in sorted(self._begun.items())]

    # -- inside --------------------------------------------------------------------------------------------------

    def _next(self, lower: RelayLocation) -> TableReading | None:
        tables = [table for _, table in sorted(self._begun.items())]
        full = (
            sum(len(table.chunks) for table in tables if not table.whole) >= CHUNKS_AHEAD
            or sum(table.waiting for table in tables) >= BYTES_AHEAD
        )
        for table in tables:
            free = not (table.busy or table.ended)
            if free and (table.whole or not full) and (table.not_before is None or table.not_before <= lower):
                return table
        if full or not self._names or len(tables) >= TABLES_AHEAD:
            return None
        name = self._names.pop(0)
        kept = self._kept.pop(name, NOTHING)
        table = self._begun[name] = TableReading(name, kept, kept)
        return table

    def _return_of(self, name: TableName) -> None:
        """Begin a table again that was gone and is there again."""
        table = self._begun.get(name)
        if table is not None and table.gone is not None:
            self._reset(table, table.delivered, None)

    @staticmethod
    def _reset(table: TableReading, kept: bytes, not_before: RelayLocation | None) -> None:
        _drop_chunks(table)
        table.kept = table.delivered = kept
        table.life += 1
        table.ended = table.whole = False
        table.gone = None
        table.not_before = not_before
        table.next_rows = FIRST_ROWS if starts(kept) else table.next_rows


def _drop_chunks(table: TableReading) -> None:
    for chunk in table.chunks:
        chunk.stored.drop()
    table.chunks.clear()


def _keep_key(table: TableReading, chunk: TableChunk) -> None:
    columns = chunk.table.schema.columns
    key = tuple((columns[index].name, columns[index].column_type) for index in chunk.table.key.columns)
    if table.key not in ((), key) and not starts(chunk.begin):
        before, now = (", ".join(name for name, _ in one) for one in (table.key, key))
        raise SchemaError(
            f"the key of table {'.'.join(table.name)} was changed while it was read: ({before}) is ({now}) now.",
            hint="Have the table read again from its first row on: what was delivered of it was told apart by a key "
            "that is gone.",
        )
    table.key = key
