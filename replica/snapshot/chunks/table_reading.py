"""One table that is being read, or a lane of it: how far it is read and delivered, and its chunks that wait.

A value that the list of tables keeps, and changes under its lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from replica.snapshot.frontier import NOTHING
from replica.snapshot.rows.chunk import FIRST_ROWS, GROWTH, largest_sql, starts
from replica.snapshot.rows.kept_key import key_bytes
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.select_list import select_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.connection.asking import SnapshotConnection
    from replica.snapshot.rows.chunk import ReadTable, TableChunk


# The end of a table to which rows are appended while it is read: chunks that grow, until one has all that is left.
#
# In: the chunks of a table as they are read. Out: how many rows the next one may have, once the key is passed that
# was the largest one when the table was begun. What lies behind was written since: chunks of a steady size might
# follow it for ever. A chunk that takes eight times the one before meets the end after a few.

MOST_ROWS: Final = 1 << 24
"""A chunk has no more rows, however many are appended: its bytes are limited all the same."""


class TableEnd:
    """The end of one table, or of its last lane. `rows`: of the next chunk, 0 while that is not to be larger."""

    def __init__(self) -> None:
        self.rows = 0
        self._largest: bytes | None = None

    def follow(self, connection: SnapshotConnection, chunk: TableChunk, asked: int) -> None:
        """Take in a chunk for which so many rows were asked, and behind which there are more."""
        table, end = chunk.table, chunk.end
        if end is None or not table.key.ordered:
            return  # only the server knows which key is the larger one
        if self._largest is None:
            self._largest = _largest(connection, table)
        if self._largest == NOTHING or key_bytes(table.schema, table.key, end) >= self._largest:
            self.rows = min(MOST_ROWS, GROWTH * asked)


def _largest(connection: SnapshotConnection, table: ReadTable) -> bytes:
    """Return the bytes of the largest key that there is; NOTHING where no row is left."""
    stream = connection.select(largest_sql(table, select_list(table.schema)))
    rows = ResultRows(table.schema, table.key, stream.columns)
    for stretch in stream.stretches():
        rows.add(stretch)
    return key_bytes(table.schema, table.key, rows.last_key()) if rows.rows else NOTHING


@dataclass(slots=True)
class TableReading:
    """A table that is begun, or a lane of it. `kept`: the key up to which it was read, `delivered`: is delivered.

    `life` counts how often its reading began again: what was read in an earlier life is thrown away. `not_before`: it
    is not read while the lower position lies before this place. `gone`: at this position there was no such table.
    `lower`: what the snapshot surely sees of the thread that reads it now, None while none does.
    `end`: whether chunks are to grow. `upto`: the kept key that a lane ends at, None for the last one; `divided`:
    whether lanes were thought of. `rekeyed`: its key is another one than that which a part of it was delivered by.
    `failures`: how often in a row it could not be read; `refused`: why it cannot be read at all.
    """

    name: TableName
    lane: int = 0
    upto: bytes | None = None
    divided: bool = False
    kept: bytes = NOTHING
    delivered: bytes = NOTHING
    next_rows: int = FIRST_ROWS
    lower: RelayLocation | None = None
    ended: bool = False
    life: int = 0
    not_before: RelayLocation | None = None
    gone: GtidPosition | None = None
    whole: bool = False
    end: TableEnd = field(default_factory=TableEnd)
    rekeyed: bool = False
    failures: int = 0
    refused: str = ""
    chunks: deque[TableChunk] = field(default_factory=deque)

    @property
    def busy(self) -> bool:
        """Whether a thread reads it."""
        return self.lower is not None

    @property
    def deliverable(self) -> bool:
        """Whether chunks of it can be delivered."""
        return bool(self.chunks) and (self.ended or not self.whole)

    def may_be_read(self, lower: RelayLocation) -> bool:
        """Tell whether the lower position has got to where it may be read."""
        return self.not_before is None or self.not_before <= lower

    @property
    def waiting(self) -> int:
        """The bytes of its chunks that count as read ahead."""
        return 0 if self.whole else sum(chunk.size for chunk in self.chunks)

    def begins_with(self, chunks: Sequence[TableChunk]) -> bool:
        """Tell whether the chunks that wait begin with these very ones."""
        pairs = zip(self.chunks, chunks, strict=False)
        return len(self.chunks) >= len(chunks) and all(one is other for one, other in pairs)

    def drop_chunks(self) -> None:
        """Drop what is read and not delivered."""
        for chunk in self.chunks:
            chunk.drop()
        self.chunks.clear()

    def reset(self, kept: bytes, not_before: RelayLocation | None) -> None:
        """Begin a new life behind a key."""
        self.drop_chunks()
        self.kept = self.delivered = kept
        self.life += 1
        self.ended = self.whole = self.divided = self.rekeyed = False
        self.gone, self.refused, self.failures = None, "", 0
        self.end = TableEnd()
        self.not_before = not_before
        self.next_rows = FIRST_ROWS if starts(kept) else self.next_rows
