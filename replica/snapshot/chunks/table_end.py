"""The end of a table to which rows are appended while it is read: chunks that grow, until one has all that is left.

In: the chunks of a table as they are read. Out: how many rows the next one may have, once the key is passed that was
the largest one when the table was begun. What lies behind was written since: chunks of a steady size might follow it
for ever. A chunk that takes eight times the one before meets the end after a few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.snapshot.frontier import NOTHING
from replica.snapshot.rows.chunk import GROWTH, largest_sql
from replica.snapshot.rows.kept_key import key_bytes
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.select_list import select_list

if TYPE_CHECKING:
    from replica.snapshot.connection.asking import SnapshotConnection
    from replica.snapshot.rows.chunk import ReadTable, TableChunk

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
