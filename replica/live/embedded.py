"""A replica inside another program's process: an asyncio loop in a daemon thread, and thread-safe calls.

In: a configuration and a relay directory. Out: the relay log to read, waits for progress, and queries to the primary.
The replica holds the directory's lock while it runs. The first permanent error ends the thread, and every later call
raises it in the caller's own thread. Import and construction have no effects. A killed process loses nothing, because
the next start recovers the log.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import copy
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

import structlog

from replica.errors import DisconnectedError, RelayError, ReplicaError
from replica.handshake.login.login import ask
from replica.handshake.primary.catalog import read_tables
from replica.handshake.start.resume import Stored
from replica.handshake.start.start import earliest, latest_and_prepared, latest_position
from replica.live.client import Replica
from replica.live.progress import Progress
from replica.protocol.gtid import GtidPosition, Order
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger, Processor

    from replica.handshake.registration import Steps
    from replica.handshake.start.start import Latest
    from replica.options.config import ReplicaConfig
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.schema.catalog import Selection
    from replica.schema.table import TableSchema

_Result = TypeVar("_Result")

STOP_TIMEOUT_S = 10.0
"""Timeout of `close` in seconds. It cancels a task and seals a file; a slower disk must not delay the caller's
shutdown.
"""

THREAD_NAME = "mariadb-replica"
"""Name of the thread of each embedded replica."""


def library_logger(*before: Processor) -> FilteringBoundLogger:
    """Return a logger that writes through Python's logging under the name `replica`.

    The process belongs to another program, which configures that logging.

    Args:
        before: processors that may change events, or drop them.
    """
    processors: list[Processor] = [
        structlog.stdlib.filter_by_level,
        *before,
        structlog.processors.KeyValueRenderer(key_order=["event"]),
    ]
    return structlog.wrap_logger(
        logging.getLogger("replica"), processors=processors, wrapper_class=structlog.stdlib.BoundLogger
    )


class EmbeddedReplica:
    """A replica in a thread of this process, which receives a primary's binlog into a relay log on disk.

    The constructor has no effects. Call `start`, read the relay directory with `read_relay_log`, and call `close`. A
    `with` block calls `close` at its end; a signal handler may call it, too. After a kill, the next start continues the
    log. All methods may be called from any thread. The first permanent error ends the replica, and every later call
    raises it.

    Args:
        config: the primary, the account, and every other option.
        relay_dir: the folder of the relay log, which is created if it does not exist. Only one replica at a time may
            write it.
        log: logger of the replica's events. None: Python's logging, under the name `replica`.
    """

    def __init__(self, config: ReplicaConfig, relay_dir: Path, *, log: FilteringBoundLogger | None = None) -> None:
        self.log = RelayLog(relay_dir)
        self.progress = Progress()
        self._config = config
        self._directory = relay_dir
        self._logger = log or library_logger()
        # Re-entrant, so that a signal handler that calls `close` does not wait for the call that it interrupted.
        self._life = threading.RLock()
        # One queue for each waiter and no lock, because the loop's thread must never wait for an interrupted caller.
        self._bells: set[queue.SimpleQueue[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._relay: RelayWriter | None = None
        self._failure: BaseException | None = None
        self._closed = False

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, begin: GtidPosition | Stored | None) -> None:
        """Lock the relay directory and begin to receive. Return at once, before there is a connection.

        If `begin` is a position that the log already contains, the log is continued. If the log does not contain the
        position, the log is emptied and begins there. With None the log is continued, and an empty one starts at the
        option `start`.

        Args:
            begin: the last GTIDs that the caller has processed. A `Stored`, which checkpoints of the Spark source hold,
                also identifies the server and the place. Then another server or a reset binlog is detected.

        Raises:
            RelayError: another replica holds the directory, this replica was started before, or the disk cannot be
                used.
        """
        with self._life:
            self._raise_failure()
            if self._relay is not None or self._closed:
                raise RelayError("this replica was already started.", hint="Make a new one for each start.")
            config = self._config
            relay = RelayWriter.open(
                self._directory,
                max_file_bytes=config.relay_max_file_bytes,
                max_file_age_s=config.relay_max_file_age_s,
            )
            stored = Stored(begin) if isinstance(begin, GtidPosition) else begin
            try:
                if stored is not None and not self._leads_to(relay, stored):
                    begun = None if config.gtid_strict_mode else stored.place
                    relay.restart(stored.position, highest=stored.highest, place=begun)
            except BaseException:
                relay.close()
                raise
            self._relay = relay
        replica = Replica(
            config, relay, log=self._logger, start=stored, on_progress=self._notify, progress=self.progress
        )
        loop = self._running_loop()
        asyncio.run_coroutine_threadsafe(self._main(replica, relay), loop)

    def _leads_to(self, relay: RelayWriter, stored: Stored) -> bool:
        return bool(relay.head.location.offset) and self.log.locate(stored.position, stored.place) is not None

    async def _main(self, replica: Replica, relay: RelayWriter) -> None:
        try:
            await replica.run()
        except asyncio.CancelledError:
            self._logger.info("stopped", position=str(relay.position))
        except Exception as error:  # noqa: BLE001  (raised again from the next call, whatever it is)
            shown = error.message if isinstance(error, ReplicaError) else repr(error)
            self._logger.error("failed", error=type(error).__name__, message=shown)  # noqa: TRY400  (it is raised again)
            self._failure = error
        finally:
            relay.close()
            self._notify()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._life:
            if self._loop is None:
                if self._closed:
                    raise RelayError("this replica was closed.", hint="Make a new one.")
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=THREAD_NAME, daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Stop receiving, seal the log and release the directory.

        It may be called twice, and raises no error of the stream.
        """
        with self._life:
            loop, thread, self._loop = self._loop, self._thread, None
            self._closed = True
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._stop(), loop)
        thread.join(STOP_TIMEOUT_S)
        if not thread.is_alive():
            loop.close()
            if self._relay is not None:
                self._relay.close()  # a task that was cancelled before its first step has not done it
        self._notify()

    async def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        loop.call_soon(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- progress ------------------------------------------------------------------------------------------------

    def head(self) -> RelayHead:
        """Return the end of the last whole transaction in the log.

        Returns:
            A `RelayHead`. Its `position` is a GtidPosition. Its `location` is the place in the relay log, which orders
            like the stream. `primary` is the file and offset in the primary's binlog. `timestamp` is the time of the
            commit, in seconds since 1970.

        Raises:
            RelayError: the replica was not started.
            ReplicaError: the error that ended the replica.
        """
        self._raise_failure()
        if self._relay is None:
            raise RelayError("this replica was not started.", hint="Call start() first.")
        return self._relay.head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:
        """Wait until the log extends beyond a location.

        Args:
            location: the `location` of an earlier `head()`.
            timeout_s: maximum wait in seconds.

        Returns:
            True as soon as the log extends beyond it. False after the timeout, or if the replica was closed.

        Raises:
            ReplicaError: as for `head`.
        """
        return self._wait(lambda: self.head().location > location, timeout_s)

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:
        """Wait until the log has all transactions up to a position.

        Args:
            position: for example the result of `server_position`.
            timeout_s: maximum wait in seconds.

        Returns:
            True as soon as the log has them. False after the timeout, or if the replica was closed.

        Raises:
            ReplicaError: as for `head`.
        """
        reached = (Order.EQUAL, Order.AFTER)
        return self._wait(lambda: self.head().position.compare(position) in reached, timeout_s)

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._bells.add(bell)
        try:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return False
                with contextlib.suppress(queue.Empty):
                    bell.get(timeout=left)
        finally:
            self._bells.discard(bell)
        return True

    def _notify(self) -> None:
        for bell in tuple(self._bells):
            bell.put(None)

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is not None:
            # A copy, because one exception object that several threads raise would collect all their tracebacks.
            raise copy.copy(failure) from failure

    # -- questions to the primary --------------------------------------------------------------------------------

    def server_position(self) -> GtidPosition:
        """Ask the primary for the last GTIDs in its binlog, over a separate connection. `start` is not needed.

        Returns:
            The position, as `SELECT @@gtid_binlog_pos` returns it.

        Raises:
            ReplicaError: the primary cannot be reached, or refuses; or the error that ended the replica.
        """
        return self._ask(latest_position)

    def latest_and_prepared(self) -> Latest:
        """Return the last GTIDs in the primary's binlog, and the XA transactions that are prepared now."""
        return self._ask(latest_and_prepared)

    def earliest_position(self) -> GtidPosition:
        """Ask the primary for the position before the oldest transaction that it still has.

        Returns:
            A position to start at.

        Raises:
            ReplicaError: as for `server_position`.
        """
        return self.earliest()[0]

    def earliest(self) -> tuple[GtidPosition, BinlogPosition]:
        """Return the position before the oldest transaction, and its place in the primary's binlog."""
        return self._ask(earliest)

    def fetch_schema(self, selection: Sequence[Selection]) -> dict[tuple[str, str], TableSchema]:
        """Return the current definition of the selected tables, by (database, table).

        Args:
            selection: pairs of a database and a table, or of a database and None for all its tables.

        Raises:
            SchemaError: a table that is selected by name does not exist, or the account may not see it.
        """
        return self._ask(lambda: read_tables(selection))

    def _ask(self, question: Callable[[], Steps[_Result]]) -> _Result:
        self._raise_failure()
        loop = self._running_loop()
        try:
            return asyncio.run_coroutine_threadsafe(ask(self._config, lambda _: question()), loop).result()
        except concurrent.futures.CancelledError:
            raise DisconnectedError("the replica was closed while it asked the primary.") from None
