"""State of one table, or of one lane of it, during a snapshot: what is read, what is delivered, which chunks wait.

`ReadingList` owns the `TableReading` objects and changes them only under its lock. `TableEnd` lets chunks grow at the
end of a table that grows while it is read.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from replica.schema.patterns import table_text
from replica.snapshot.frontier import NOTHING
from replica.snapshot.images.key_states import PartialRowError
from replica.snapshot.pace import MOST_UNSETTLED
from replica.snapshot.reconcile.whole_rows import UnlikeRowsError, unlike_error, unsettled_error
from replica.snapshot.reconcile.window import location_at
from replica.snapshot.rows.chunk import FIRST_ROWS, GROWTH, largest_sql, starts
from replica.snapshot.rows.kept_key import key_bytes
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.table_map import select_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.errors import ReplicaError
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.schedule import ReadingList
    from replica.snapshot.connection.connection import SnapshotConnection
    from replica.snapshot.pace import Pace
    from replica.snapshot.reconcile.reconciler import ChunkReconciler
    from replica.snapshot.rows.chunk import ReadTable, TableChunk

# Rows may be appended to a table while it is read, and chunks of a constant size might then never reach its end. After
# the key that was the largest at the first chunk, each chunk is eight times as large as the one before.

MOST_ROWS: Final = 1 << 24
"""Maximum rows of a chunk at a growing end. The byte limit applies as well."""


class TableEnd:
    """End of a table, or of its last lane. `rows`: number of rows of the next chunk, 0 while chunks have their normal
    size.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._largest: bytes | None = None

    def follow(self, connection: SnapshotConnection, chunk: TableChunk, requested: int) -> None:
        """Update the chunk size after a chunk that did not reach the table's end.

        `requested` is the number of rows that the SELECT of `chunk` requested. The connection is used to query the
        largest key.
        """
        table, end = chunk.table, chunk.end
        if end is None or not table.key.ordered:
            return  # only the server can compare these keys
        if self._largest is None:
            self._largest = _largest(connection, table)
        if self._largest == NOTHING or key_bytes(table.schema, table.key, end) >= self._largest:
            self.rows = min(MOST_ROWS, GROWTH * requested)


def _largest(connection: SnapshotConnection, table: ReadTable) -> bytes:
    """Return the bytes of the table's largest key; NOTHING if the table is empty."""
    stream = connection.select(largest_sql(table, select_list(table.schema)))
    rows = ResultRows(table.schema, table.key, stream.columns)
    for stretch in stream.stretches():
        rows.add(stretch)
    return key_bytes(table.schema, table.key, rows.last_key()) if rows.rows else NOTHING


@dataclass(slots=True)
class TableReading:
    """State of a table, or of one lane of it, that a thread has started to read.

    Attributes:
        lane: Number of the lane, from 0.
        upto: Kept key at which the lane ends; None for the last lane.
        divided: Whether dividing the table into lanes was considered.
        kept: Kept key up to which the table is read.
        delivered: Kept key up to which the table is delivered.
        next_rows: Rows to request for the next chunk.
        low: Low watermark of the thread that reads the table now; None if no thread does.
        ended: Whether the table is read to its end.
        life: Number of restarts. Chunks read in an earlier life are discarded.
        not_before: The table is not read while the low watermark is before this location.
        absent_at: Position at which the table did not exist.
        at_once: Whether all chunks are delivered together.
        end: Growth of the chunks at the end of the table.
        rekeyed: Whether a part of the table was delivered by a key that has changed.
        failures: Number of consecutive failures.
        refused: Why the table cannot be read at all.
        chunks: Chunks that wait for delivery.
    """

    name: TableName
    lane: int = 0
    upto: bytes | None = None
    divided: bool = False
    kept: bytes = NOTHING
    delivered: bytes = NOTHING
    next_rows: int = FIRST_ROWS
    low: RelayLocation | None = None
    ended: bool = False
    life: int = 0
    not_before: RelayLocation | None = None
    absent_at: GtidPosition | None = None
    at_once: bool = False
    end: TableEnd = field(default_factory=TableEnd)
    rekeyed: bool = False
    failures: int = 0
    refused: str = ""
    chunks: deque[TableChunk] = field(default_factory=deque)

    @property
    def busy(self) -> bool:
        """Whether a thread reads the table."""
        return self.low is not None

    @property
    def deliverable(self) -> bool:
        """Whether chunks of the table can be delivered."""
        return bool(self.chunks) and (self.ended or not self.at_once)

    def may_be_read(self, low: RelayLocation) -> bool:
        """Return True if the low watermark has reached `not_before`."""
        return self.not_before is None or self.not_before <= low

    @property
    def waiting(self) -> int:
        """Bytes of waiting chunks that count against the read-ahead limit."""
        return 0 if self.at_once else sum(chunk.size for chunk in self.chunks)

    def begins_with(self, chunks: Sequence[TableChunk]) -> bool:
        """Return True if the waiting chunks start with exactly these objects."""
        pairs = zip(self.chunks, chunks, strict=False)
        return len(self.chunks) >= len(chunks) and all(one is other for one, other in pairs)

    def drop_chunks(self) -> None:
        """Drop all chunks that are read and not delivered."""
        for chunk in self.chunks:
            chunk.drop()
        self.chunks.clear()

    def reset(self, kept: bytes, not_before: RelayLocation | None) -> None:
        """Start a new life after the key `kept`."""
        self.drop_chunks()
        self.kept = self.delivered = kept
        self.life += 1
        self.ended = self.at_once = self.divided = self.rekeyed = False
        self.absent_at, self.refused, self.failures = None, "", 0
        self.end = TableEnd()
        self.not_before = not_before
        self.next_rows = FIRST_ROWS if starts(kept) else self.next_rows


# `TableRetries` reads a table again if its rows cannot be reconciled, from a later watermark if that helps. After
# MOST_UNKNOWN or MOST_UNSETTLED retries it raises an error, or skips the table if errors are handled table by table.


MOST_UNKNOWN: Final = 10
"""Maximum retries of a table whose row images omit columns of rows that the chunk does not have yet. Each such change
of the last ten seconds may cause another retry. The retries end when the writers pause, or when changes omit no column.
"""
_log = logging.getLogger(__name__)


class TableRetries:
    """Retry counts of one query's tables since the last delivery of their rows."""

    def __init__(self, pace: Pace, tables: ReadingList, reconciler: ChunkReconciler) -> None:
        self._pace = pace
        self._tables = tables
        self._reconciler = reconciler
        self._unknown: Counter[TableName] = Counter()
        self._unsettled: Counter[TableName] = Counter()

    def forget(self, table: TableReading) -> None:
        """Reset the counts of a table after a delivery, or after its reading has ended."""
        del self._unknown[table.name], self._unsettled[table.name]

    def retry(self, table: TableReading, error: Exception, v: RelayLocation) -> None:
        """Read a table again, because its rows could not be reconciled with the batch position `v`.

        `error` determines from which low watermark the next read may start.
        """
        if isinstance(error, PartialRowError):
            self._retry_later(table, error.place)
        elif isinstance(error, UnlikeRowsError):
            self.retry_settled(table, v, unlike=True)
        else:
            self._tables.restart(table)

    def retry_settled(self, table: TableReading, place: RelayLocation, *, unlike: bool = False) -> None:
        """Read a table without a key again, after the low watermark has passed the change at `place`.

        `unlike`: the rows that were read did not match the before images of the changes.
        """
        self._unsettled[table.name] += 1
        if self._unsettled[table.name] >= MOST_UNSETTLED:
            self._give_up(table, unlike_error(table.name) if unlike else unsettled_error(table.name, MOST_UNSETTLED))
            return
        _log.info("%s has no key and changed during its read: it is re-snapshotted", table_text(table.name))
        self._tables.restart(table, not_before=place)

    def _retry_later(self, table: TableReading, place: int) -> None:
        """Read a table again with a snapshot that surely sees the change whose image omits columns."""
        self._unknown[table.name] += 1
        if self._unknown[table.name] > MOST_UNKNOWN:
            self._give_up(table, self._reconciler.partial_error(table.name, place))
            return
        self._tables.restart(table, not_before=location_at(place))

    def _give_up(self, table: TableReading, error: ReplicaError) -> None:
        """Stop reading a table that cannot be reconciled; raise the error unless errors are handled table by table."""
        if not self._pace.table_by_table:
            raise error
        self.forget(table)
        self._tables.refuse(table, table.life, str(error))
