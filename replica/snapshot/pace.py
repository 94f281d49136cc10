"""Pace of a snapshot, which limits the load on the server: options as plain values, and a rate limit.

`Pace` says how many connections read, how large a chunk is, and when reading pauses. `RowRate` limits rows per second.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.options.values import Endpoint

CHUNK_ROWS: Final = 100_000
CHUNK_BYTES: Final = 32 << 20
"""Size limit of a chunk, together with CHUNK_S. A connection holds a chunk in memory, and an ALTER of the table waits
for it.
"""
CHUNK_S: Final = 0.5
"""Target time of a chunk's SELECT in seconds. Read views and metadata locks below a second do no harm."""
MOST_THREADS_RUNNING: Final = 64
"""Reading pauses while the server runs more statements at once; most machines have fewer cores."""
MOST_HISTORY: Final = 1_000_000
"""Reading pauses while InnoDB's history list is longer: purge lags, and open read views delay it further."""
MOST_UNSETTLED: Final = 12
"""Attempts to read a table without a key whose rows change during the read; then an error is raised. Each retry waits
for a low watermark after the last change. On a busy server, the low watermark is ten seconds old.
"""
BURST_S: Final = 1.0
"""Seconds of unused rate that may accumulate, because rows are counted a chunk at a time."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Load on the server that reading may cause.

    Attributes:
        connections: Number of connections that read.
        chunk_rows: Maximum rows of a chunk.
        chunk_bytes: Maximum bytes of a chunk.
        rows_a_second: Maximum rate of rows; None for no limit.
        most_threads_running: Reading pauses while Threads_running is higher.
        most_history: Reading pauses while InnoDB's history list is longer.
        statement_s: Maximum run time of a statement on the server, in seconds.
        lock_wait_s: Maximum wait for a lock on the server, in seconds.
        host: Server to read from, if it is not the stream's server.
        spool_bytes: Maximum bytes of waiting chunks on disk; None for the limit of the relay log.
        unkeyed: Read a table whole if it has no key, or if its engine has no consistent snapshots.
        resnapshot_statement_dml: Re-snapshot tables that a statement changes without row events; else raise an error.
        table_by_table: The caller handles errors of single tables. It re-snapshots a table whose key changed after a
            partial delivery, and skips a table that cannot be read. Without it, both cases raise an error.
    """

    connections: int = 2
    chunk_rows: int = CHUNK_ROWS
    chunk_bytes: int = CHUNK_BYTES
    rows_a_second: float | None = None
    most_threads_running: int = MOST_THREADS_RUNNING
    most_history: int = MOST_HISTORY
    statement_s: float = 60.0
    lock_wait_s: float = 5.0
    host: Endpoint | None = None
    spool_bytes: int | None = None
    unkeyed: bool = False
    resnapshot_statement_dml: bool = False
    table_by_table: bool = False


class RowRate:
    """Rate limit over all connections, thread-safe. Without a limit, `wait_s` returns 0."""

    def __init__(self, rows_a_second: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rows_a_second
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = clock()

    def took(self, rows: int) -> None:
        """Count rows that were read."""
        if self._rate is not None:
            with self._lock:
                self._free_at = max(self._free_at, self._clock() - BURST_S) + rows / self._rate

    def wait_s(self) -> float:
        """Return the seconds for which no chunk may be read."""
        with self._lock:
            return max(0.0, self._free_at - self._clock()) if self._rate is not None else 0.0
