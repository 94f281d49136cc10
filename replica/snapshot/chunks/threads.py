"""Threads that read the tables of a snapshot, one per connection.

`ReadingThreads` takes tables from the reading list and puts chunks back. Lost connections, locks, statement timeouts
and DDL are transient: a thread waits or reads again, on another host if there is one. Any other error ends all threads,
and `check` raises it with the table's name. The threads pause while the server is loaded, while the disk is full, and
while the server has not reached the low watermark. `lane_borders` divides large tables so that several connections
share them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import DisconnectedError, DiskFullError, KeyChangedError, ReplicaError, ServerError
from replica.protocol.gtid import covers
from replica.schema.patterns import table_text
from replica.schema.text.naming import quoted, quoted_table
from replica.snapshot.check.catalog import count_table_rows
from replica.snapshot.chunks.reader import ChunkReader, LaggingServerError, Wanted
from replica.snapshot.errors import SAME_ERROR, TRANSIENT, concerns_only_table, named, needs_new_definition
from replica.snapshot.pace import RowRate
from replica.snapshot.rows.kept_key import kept_integer, kept_integers

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.options.config import ReplicaConfig
    from replica.options.values import Endpoint
    from replica.snapshot.chunks.reader import Read
    from replica.snapshot.chunks.schedule import ReadingList
    from replica.snapshot.chunks.table_reading import TableReading
    from replica.snapshot.connection.connection import QueryConnection, SnapshotConnection
    from replica.snapshot.pace import Pace
    from replica.snapshot.rows.chunk import TableChunk
    from replica.snapshot.spool.spool import Spool
    from replica.snapshot.watermark.watch import Seen, SourceWatch

IDLE_S: Final = 0.1
"""Interval in seconds at which an idle thread polls; a change of the list wakes it at once."""
SHORTER: Final = 4
"""Divisor of a chunk's rows after a statement timeout."""
CLOSE_S: Final = 10.0
"""Maximum wait for a thread in seconds when closing. Connections are closed first, so only a dead network takes that
long.
"""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Trouble:
    """Number of consecutive errors, and the time of the first one."""

    count: int = 0
    since: float = 0.0

    def failed(self) -> None:
        self.count += 1
        self.since = self.since if self.count > 1 else time.monotonic()

    def recovered(self) -> None:
        self.count = 0


@dataclass(slots=True)
class _Line:
    connection: SnapshotConnection | None = None
    host: Endpoint | None = None


class ReadingThreads:
    """Reading threads of one snapshot. `connect` opens a connection to a host."""

    def __init__(
        self,
        config: ReplicaConfig,
        pace: Pace,
        tables: ReadingList,
        spool: Spool,
        watch: SourceWatch,
        connect: Callable[[Endpoint], SnapshotConnection],
    ) -> None:
        self._config = config
        self._pace = pace
        self._tables = tables
        self._spool = spool
        self._watch = watch
        self._connect = connect
        self._reader = ChunkReader(connect, spool, pace)
        self._rate = RowRate(pace.rows_a_second)
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._open: set[SnapshotConnection] = set()
        self._waits: dict[int, str] = {}
        self._lock = threading.Lock()
        self.rows = 0
        self.size = 0

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._pace.connections):
            thread = threading.Thread(target=self._run, args=(number,), name=f"table-reader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def check(self) -> None:
        """Raise the error that ended the threads, if there is one."""
        if self._failure is not None:
            raise self._failure

    @property
    def waits_for(self) -> str:
        """Reason why all threads wait; empty if one of them reads."""
        with self._lock:
            waits = list(self._waits.values())
        return waits[0] if waits and all(waits) else ""

    def close(self) -> None:
        """End the threads, even while they wait."""
        self._ending.set()
        self._tables.close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with contextlib.suppress(Exception):
                connection.close()
        for thread in self._threads:
            thread.join(CLOSE_S)
        self._reader.memory.close()

    # -- one thread ----------------------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        try:
            self._loop(number)
        except Exception as error:  # noqa: BLE001  (the next call of `check` raises it)
            if not self._ending.is_set():
                self._failure = self._failure or error
                self._ending.set()
                with self._tables.changed:
                    self._tables.changed.notify_all()

    def _loop(self, number: int) -> None:
        line = _Line()
        trouble = _Trouble()
        try:
            while not self._ending.is_set():
                seen, reason = self._current_watermark()
                if seen is None:
                    self._wait(number, reason)
                    continue
                table = self._tables.take(seen.low.location, IDLE_S)
                if table is None:
                    self._wait(number, "delivery" if self._tables.deliverable() else "", 0)
                    continue
                self._wait(number, "", 0)
                life = table.life
                try:
                    self._read(self._connected(line, seen.host), line, table, life, seen)
                    trouble.recovered()
                except LaggingServerError:
                    self._tables.give_back(table)
                    self._wait(number, "the server that tables are read from, which lags")
                except ReplicaError as error:
                    of_table = line.connection is not None  # otherwise the error concerns the server, not the table
                    self._hang_up(line)
                    trouble.failed()
                    table.failures += of_table
                    if of_table and self._leaves(error, table, life):
                        trouble.recovered()
                        continue
                    self._tables.give_back(table)
                    count = table.failures if of_table else trouble.count
                    self._wait(number, self._passes(error, table, count, trouble.since), self._back_off(trouble))
        finally:
            self._hang_up(line)

    def _current_watermark(self) -> tuple[Seen | None, str]:
        """Return the current low watermark and host, or None and the reason why nothing is read."""
        seen = self._watch.seen
        if seen is None:
            return None, self._watch.waits_for or "a position that the server has surely committed"
        if self._watch.loaded:
            return None, self._watch.loaded
        if self._rate.wait_s():
            return None, "the limit of the row rate"
        if not self._spool.has_room(self._pace.chunk_bytes) and self._tables.deliverable():
            return None, "free space on the disk"
        return seen, ""

    def _read(self, connection: SnapshotConnection, line: _Line, table: TableReading, life: int, seen: Seen) -> None:
        rows = table.end.rows or min(table.next_rows, self._pace.chunk_rows)
        wanted = Wanted(table.name, table.kept, table.upto, rows)
        read = self._reader.read(connection, wanted, seen)
        if not read.connected:
            self._hang_up(line)
        table.next_rows = read.next_rows
        if read.chunk is None:
            if not covers(read.high, self._tables.named_at):
                raise LaggingServerError  # a lagging replica may still create the table
            self._tables.give_back(table, absent_at=read.high, life=life)
            return
        if read.connected and table.upto is None:
            table.end.follow(connection, read.chunk, rows)
        if self._tables.put(table, life, read.chunk, self._borders(connection, table, read)):
            if rows <= self._pace.chunk_rows:  # at a table's end the rate limit might be slower than the writers
                self._rate.took(read.chunk.rows)
            with self._lock:
                self.rows += read.chunk.rows
                self.size += read.chunk.size

    def _borders(self, connection: SnapshotConnection, table: TableReading, read: Read) -> list[bytes]:
        """Return the borders of a table's lanes; empty if the table was considered before, or if there is only one
        connection.
        """
        if table.divided or read.chunk is None or not read.connected or self._pace.connections == 1:
            return []
        table.divided = True
        return lane_borders(connection, read.chunk, self._pace.chunk_rows)

    def _leaves(self, error: ReplicaError, table: TableReading, life: int) -> bool:
        """Return True if an error concerns only this table, and the table has been restarted or refused.

        Raises:
            KeyChangedError: A part of the table was delivered by another key, and no caller requests a re-snapshot.
        """
        if isinstance(error, KeyChangedError):
            if self._tables.rekey(table, life) and not self._pace.table_by_table:
                raise named(error, table.name) from error
            return True
        if not (self._pace.table_by_table and concerns_only_table(error, table.failures)):
            return False
        self._tables.refuse(table, life, str(named(error, table.name)))
        return True

    def _passes(self, error: ReplicaError, table: TableReading, count: int, since: float) -> str:
        """Return what to wait for after the `count`-th consecutive transient error; raise any other error."""
        if isinstance(error, DisconnectedError):
            if time.monotonic() - since > self._config.reconnect_retry_s:
                raise named(error, table.name) from error
            return "a connection"
        if isinstance(error, DiskFullError) and self._tables.deliverable():
            return "free space on the disk"
        if needs_new_definition(error, count):
            return "the definition of a table"
        code = error.code if isinstance(error, ServerError) else 0
        if code in TRANSIENT and count < SAME_ERROR:
            table.next_rows = max(1, table.next_rows // SHORTER)
            table.end.rows //= SHORTER
            _log.info("the read of %s restarts: %s", table_text(table.name), TRANSIENT[code])
            return TRANSIENT[code]
        raise named(error, table.name) from error

    def _back_off(self, trouble: _Trouble) -> float:
        longest = min(self._config.backoff_max_s, self._config.backoff_initial_s * 2**trouble.count)
        return longest if trouble.count > 1 else 0.0

    def _wait(self, number: int, reason: str, seconds: float = IDLE_S) -> None:
        with self._lock:
            self._waits[number] = reason
        if seconds:
            self._ending.wait(seconds)

    def _connected(self, line: _Line, host: Endpoint) -> SnapshotConnection:
        """Return the thread's connection to this host."""
        if line.connection is not None and line.host == host:
            return line.connection
        self._hang_up(line)
        line.connection, line.host = self._connect(host), host
        with self._lock:
            self._open.add(line.connection)
        return line.connection

    def _hang_up(self, line: _Line) -> None:
        connection, line.connection = line.connection, None
        if connection is not None:
            with self._lock:
                self._open.discard(connection)
            with contextlib.suppress(ReplicaError, OSError):
                connection.close()


# Lanes divide a large table with a single integer key, so that several connections read it at once. The borders are
# evenly spaced between the first chunk's last key and the table's largest key. Lanes only share the work: each lane is
# read in chunks, so uneven keys cost time and no memory. Rows are still delivered in key order.

LANE_CHUNKS: Final = 4
"""Estimated chunks of a lane. Chunks of later lanes wait until the first lane is delivered."""
MOST_LANES: Final = 4096
"""Maximum number of lanes of a table; a lane takes less than a KB of memory."""

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")


def lane_borders(connection: QueryConnection, chunk: TableChunk, chunk_rows: int) -> list[bytes]:
    """Return the kept keys that end each lane but the last; empty for a table that needs no lanes.

    Args:
        connection: Connection to the server that tables are read from.
        chunk: First chunk of the table.
        chunk_rows: Maximum rows of a chunk.
    """
    schema, key = chunk.table.schema, chunk.table.key
    if chunk.end is None or len(key.columns) != 1:
        return []
    column = schema.columns[key.columns[0]]
    if column.data_type not in _INTEGERS:
        return []
    name = schema.database, schema.table
    count = min(MOST_LANES, count_table_rows(connection, name) // (LANE_CHUNKS * chunk_rows))
    if count < 2:
        return []
    largest = connection.rows(f"SELECT MAX({quoted(column.name)}) FROM {quoted_table(name)}")[0][0]  # noqa: S608  (quoted)
    last = kept_integer(schema, key, chunk.end)
    reach = int(largest or 0) - last
    values = sorted({last + reach * number // count for number in range(1, count)} - {last}) if reach > 0 else []
    return kept_integers(schema, key, values)
