"""The pace at which tables are read, so that their server hardly notices: options as plain values, and a rate of rows.

In: what a query's options say. Out: how many connections read, how large a chunk is, when to pause.
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
"""The size of a chunk, with CHUNK_S: a connection holds its memory, and an ALTER of the table waits for it."""
CHUNK_S: Final = 0.5
"""How long a chunk's SELECT should take: read views and metadata locks that live below a second hurt no one."""
MOST_THREADS_RUNNING: Final = 64
"""Reading pauses while the server runs more statements at once: more than its cores, on most machines."""
MOST_HISTORY: Final = 1_000_000
"""Reading pauses while InnoDB's history is longer: purge is behind then, and read views are what holds it up."""
MOST_UNSETTLED: Final = 12
"""How often a table without a key is read, before it is said that its rows are always changed meanwhile: each time but
the first waits for a position behind the last change, ten seconds old on a server that commits all the time."""
BURST_S: Final = 1.0
"""How far the rate of rows may be ahead: a chunk is one step."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The cost to the server that reading may have. `host`: the one that is read, where it is not that of the stream.

    `spool_bytes`: the most that waits on disk; None: as much as the relay log may hold. `unkeyed`: tables that have no
    key, or of whose rows no snapshot is to be had, are read in one go. `untold_again`: what a statement without rows
    changes while it is read, is read again; an error otherwise. `table_by_table`: the caller follows what becomes
    of single tables: has one read again whose key was changed while a part of it was delivered, and does without one
    that cannot be read any more; errors otherwise.
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
    untold_again: bool = False
    table_by_table: bool = False


class RowRate:
    """The rate of rows of all connections together. Thread-safe; without a limit nothing waits."""

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
        """Say for how many seconds no chunk may be read."""
        with self._lock:
            return max(0.0, self._free_at - self._clock()) if self._rate is not None else 0.0
