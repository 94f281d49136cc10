"""One chunk of a table, read in a snapshot transaction of its own.

In: a connection, a table, the key up to which it was read, and what the snapshot surely sees (the lower position). Out:
the chunk with its rows in the spool, or that there is no such table. A table without a key is one chunk. Its definition
is read before the snapshot is opened, behind the lower position: what changes the table after that is found in the
relay log between the chunk's `lower` and `upper`. Refused: a result that is not what the definition says; a server that
is behind the lower position is for the caller to wait for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.native.array_memory import ArrayMemory
from replica.protocol.gtid import covers
from replica.snapshot.check.catalog import describe_table
from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import CHUNK_BYTES
from replica.snapshot.rows.chunk import TableChunk, chunk_sql, next_rows, starts, whole_sql
from replica.snapshot.rows.kept_key import key_literals
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.select_list import select_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.options.values import Endpoint
    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from replica.snapshot.connection.asking import SnapshotConnection
    from replica.snapshot.pace import Pace
    from replica.snapshot.rows.chunk import ReadTable
    from replica.snapshot.rows.row_block import RowBlock
    from replica.snapshot.spool.spool import Spool, StoredBlock
    from replica.snapshot.watermark.watch import Seen

OVERRUN: Final = 2
"""How many times the bytes of a chunk may come, where rows are suddenly wider: then it ends early."""


class BehindError(Exception):
    """The server that is read from has not reached the lower position; it never leaves the threads."""


class Wanted(NamedTuple):
    """The chunk that is to be read. `begin`: the kept key it begins behind; `end`: the last one, None for no end."""

    name: TableName
    begin: bytes
    end: bytes | None
    rows: int


@dataclass(frozen=True, slots=True)
class ChunkReader:
    """The reading of chunks, over any connection. `connect` opens one more, to a host; `memory` is that of rows."""

    connect: Callable[[Endpoint], SnapshotConnection]
    spool: Spool
    pace: Pace
    memory: ArrayMemory = field(default_factory=ArrayMemory)

    def read(self, connection: SnapshotConnection, wanted: Wanted, seen: Seen) -> Read:
        """Read a chunk over a connection to the host of `seen`, which may be closed then (`Read.connected`).

        Raises:
            BehindError: the server has not got to the lower position.
            KeyChangedError: the table has another key than the one that the chunk begins behind.
            ReplicaError: as the connection, the catalog and the rows say.
        """
        table = describe_table(connection, wanted.name, unkeyed=self.pace.unkeyed)
        if table is None:
            return Read(None, connection.position(), wanted.rows, connected=True)
        begin = () if starts(wanted.begin) else key_literals(table.schema, table.key, wanted.begin)
        if table.key.is_row:
            return self._read_whole(connection, table, wanted, seen)
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
        grown = wanted.rows > self.pace.chunk_rows  # at the end of a table: see `TableEnd`
        most_bytes = OVERRUN * max(self.pace.chunk_bytes, CHUNK_BYTES if grown else 0)
        size, cut = 0, False
        for stretch in stream.stretches():
            rows.add(stretch)
            size += stretch.end - stretch.start
            if size > most_bytes:
                cut = True
                break
        upper = self._end(connection, seen.host, cut=cut)
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
            seen.lower.location,
            upper,
            block.rows,
            size,
            (self.spool.store(block),),
        )
        return Read(chunk, upper, more, connected=not cut)

    def _read_whole(self, connection: SnapshotConnection, table: ReadTable, wanted: Wanted, seen: Seen) -> Read:
        """Read a table in one go, as one chunk: nothing tells where a second one would begin."""
        opened = _begin(connection, seen)
        connection.rows("SET SESSION max_statement_time = 0")  # however large it is
        stream = connection.select(whole_sql(table, select_list(table.schema)))
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
            upper = self._end(connection, seen.host, cut=False)
            connection.rows(f"SET SESSION max_statement_time = {self.pace.statement_s:g}")
        except BaseException:
            for block in stored:
                block.drop()
            raise
        count, size = sum(block.rows for block in stored), sum(block.size for block in stored)
        shown = None if table.locks else opened
        chunk = TableChunk(table, NOTHING, None, seen.lower.location, upper, count, size, tuple(stored), shown)
        return Read(chunk, upper, wanted.rows, connected=True)

    def _end(self, connection: SnapshotConnection, host: Endpoint, *, cut: bool) -> GtidPosition:
        """End the snapshot; return the server's position, read before that or later."""
        if not cut:
            upper = connection.position()
            connection.end_snapshot()
            return upper
        # The rest of the result is not wanted: hanging up is the only way to be spared it.
        connection.close()
        other = self.connect(host)
        try:
            return other.position()
        finally:
            other.close()


class Read(NamedTuple):
    """The outcome of reading a chunk: None where there was no such table at `upper`. `next_rows`: for the next one."""

    chunk: TableChunk | None
    upper: GtidPosition
    next_rows: int
    connected: bool


def _begin(connection: SnapshotConnection, seen: Seen) -> GtidPosition:
    """Open a snapshot, and return the position that it shows at least; the server may be behind the lower one."""
    opened = connection.begin_snapshot()
    if not covers(opened, seen.lower.position):
        connection.end_snapshot()
        raise BehindError
    return opened


def _by_row(block: RowBlock) -> RowBlock:
    """Return a block with its images as the keys of its rows."""
    return replace(block, keys=block.images, key_ends=block.ends)
