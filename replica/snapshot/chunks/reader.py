"""Reader of single chunks of a table, each in its own snapshot transaction.

`ChunkReader.read` takes a connection, a table, the last key read and the low watermark. It stores the rows in the spool
and returns the chunk; a table without a key is one chunk. The reader fetches the definition after the low watermark and
before the snapshot opens. Later DDL is therefore in the relay log between the chunk's `low` and `high`. The reader
refuses a result that does not match the definition. If the server has not reached the low watermark, the caller has to
wait.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.native.arrays import ArrayMemory
from replica.protocol.gtid import covers
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import CHUNK_BYTES
from replica.snapshot.rows.chunk import TableChunk, chunk_sql, full_table_sql, next_rows, starts
from replica.snapshot.rows.kept_key import key_literals
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.table_map import select_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.options.values import Endpoint
    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from replica.snapshot.connection.connection import SnapshotConnection
    from replica.snapshot.pace import Pace
    from replica.snapshot.rows.chunk import ReadTable
    from replica.snapshot.rows.row_block import RowBlock
    from replica.snapshot.spool.spool import Spool, StoredBlock
    from replica.snapshot.watermark.watch import Seen

OVERRUN: Final = 2
"""A chunk ends early after this multiple of its byte limit, for tables whose rows suddenly become wider."""


class LaggingServerError(Exception):
    """Error of a server that has not reached the low watermark. This error never leaves the reading threads."""


class Wanted(NamedTuple):
    """Request for a chunk. `begin`: kept key before the first row; `end`: last kept key, None for no end."""

    name: TableName
    begin: bytes
    end: bytes | None
    rows: int


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """Reader of chunks over any connection. `connect` opens another connection to a host; `memory` holds the rows."""

    connect: Callable[[Endpoint], SnapshotConnection]
    spool: Spool
    pace: Pace
    memory: ArrayMemory = field(default_factory=ArrayMemory)

    def read(self, connection: SnapshotConnection, wanted: Wanted, seen: Seen) -> Read:
        """Read a chunk over a connection to the host of `seen`; the reader may close the connection (`Read.connected`).

        Raises:
            LaggingServerError: The server has not reached the low watermark.
            KeyChangedError: The table's key differs from the key of `wanted.begin`.
            ReplicaError: The connection, the catalog or the rows have an error.
        """
        table = describe_table(connection, wanted.name, unkeyed=self.pace.unkeyed)
        if table is None:
            return Read(None, connection.position(), wanted.rows, connected=True)
        begin = () if starts(wanted.begin) else key_literals(table.schema, table.key, wanted.begin)
        if table.key.is_row:
            return self._read_table(connection, table, wanted, seen)
        end = () if wanted.end is None else key_literals(table.schema, table.key, wanted.end)
        sql = chunk_sql(table, select_list(table.schema), wanted.rows, begin=begin, end=end)
        began = time.monotonic()
        _begin(connection, seen)
        stream = connection.select(sql)
        rows = ResultRows(
            *(table.schema, table.key, stream.columns),
            expected=wanted.rows,
            memory=self.memory,
            defined=table.defined,
            left_out=table.left_out,
        )
        grown = wanted.rows > self.pace.chunk_rows  # only at the end of a table, see `TableEnd`
        most_bytes = OVERRUN * max(self.pace.chunk_bytes, CHUNK_BYTES if grown else 0)
        size, cut = 0, False
        for stretch in stream.stretches():
            rows.add(stretch)
            size += stretch.end - stretch.start
            if size > most_bytes:
                cut = True
                break
        high = self._end(connection, seen.host, cut=cut)
        seconds = time.monotonic() - began
        last = rows.last_key() if rows.rows else None
        block = rows.block()
        ended = block.rows < wanted.rows and not cut
        more = next_rows(
            *(wanted.rows, block.rows, size, seconds), most_rows=self.pace.chunk_rows, most_bytes=self.pace.chunk_bytes
        )
        chunk = TableChunk(
            table,
            wanted.begin,
            wanted.end if ended else last,
            seen.low.location,
            high,
            block.rows,
            size,
            (self.spool.store(block),),
        )
        return Read(chunk, high, more, connected=not cut)

    def _read_table(self, connection: SnapshotConnection, table: ReadTable, wanted: Wanted, seen: Seen) -> Read:
        """Read a table without a key as one chunk, because no key marks the start of a second one."""
        opened = _begin(connection, seen)
        connection.rows("SET SESSION max_statement_time = 0")  # reading a whole table may take hours
        stream = connection.select(full_table_sql(table, select_list(table.schema)))
        rows = ResultRows(
            *(table.schema, None, stream.columns),
            memory=self.memory,
            defined=table.defined,
            left_out=table.left_out,
        )
        stored: list[StoredBlock] = []
        try:
            for stretch in stream.stretches():
                rows.add(stretch)
                if rows.size >= self.pace.chunk_bytes:
                    stored.append(self.spool.store(_by_row(rows.block())))
            stored.append(self.spool.store(_by_row(rows.block())))
            high = self._end(connection, seen.host, cut=False)
            connection.rows(f"SET SESSION max_statement_time = {self.pace.statement_s:g}")
        except BaseException:
            for block in stored:
                block.drop()
            raise
        count, size = sum(block.rows for block in stored), sum(block.size for block in stored)
        shown = None if table.locks else opened
        chunk = TableChunk(table, NOTHING, None, seen.low.location, high, count, size, tuple(stored), shown)
        return Read(chunk, high, wanted.rows, connected=True)

    def _end(self, connection: SnapshotConnection, host: Endpoint, *, cut: bool) -> GtidPosition:
        """End the snapshot and return a server position read while it was open or later."""
        if not cut:
            high = connection.position()
            connection.end_snapshot()
            return high
        # Only closing the connection discards the rest of the result.
        connection.close()
        other = self.connect(host)
        try:
            return other.position()
        finally:
            other.close()


class Read(NamedTuple):
    """Result of reading a chunk.

    Attributes:
        chunk: The chunk; None if the table did not exist at `high`.
        high: Server position read after the rows.
        next_rows: Number of rows to request for the next chunk.
        connected: Whether the connection is still open.
    """

    chunk: TableChunk | None
    high: GtidPosition
    next_rows: int
    connected: bool


def _begin(connection: SnapshotConnection, seen: Seen) -> GtidPosition:
    """Open a snapshot and return the server's position read after that; the snapshot shows no later change.

    Raises:
        LaggingServerError: The server has not reached the low watermark.
    """
    opened = connection.begin_snapshot()
    if not covers(opened, seen.low.position):
        connection.end_snapshot()
        raise LaggingServerError
    return opened


def _by_row(block: RowBlock) -> RowBlock:
    """Return a block that uses each row's image as its key."""
    return replace(block, keys=block.images, key_ends=block.ends)
