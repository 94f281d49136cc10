"""A replica inside another program's process: an asyncio loop in a daemon thread, and calls that are safe from any
other.

In: a configuration and a relay directory. Out: the relay log to read, waits for progress, questions to the primary. It
owns the directory's lock while it runs. The first permanent error ends the thread and is raised again from every call,
in the caller's own thread. Nothing happens at import or construction; a process that is killed loses nothing, because
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
from replica.handshake.ask import ask
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
"""Closing cancels a task and seals a file; a disk that takes longer must not hold up the caller's shutdown."""


def library_logger(*before: Processor) -> FilteringBoundLogger:
    """Make a logger that sends events through Python's logging under the name `replica`: the process belongs to another
    program. `before` may change events, or drop them.
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
    """Run a replica in a thread of this process: it receives a primary's binlog into a relay log on disk.

    Making one touches nothing. `start` it, read its folder with `read_relay_log`, and `close` it: at the end of a
    `with`, from a signal handler, or at exit. A process that is killed loses nothing: the next start goes on. All
    methods may be called from any thread. The first permanent error ends the replica, and is raised from every call.

    Args:
        config: the primary, the account, and every other option.
        relay_dir: the folder of the relay log, which is made if need be. One replica at a time writes it.
        log: where events go; None: to Python's logging, under the name `replica`.
    """

    def __init__(self, config: ReplicaConfig, relay_dir: Path, *, log: FilteringBoundLogger | None = None) -> None:
        self.log = RelayLog(relay_dir)
        self.progress = Progress()
        self._config = config
        self._directory = relay_dir
        self._logger = log or library_logger()
        # Re-entrant, so that a signal handler that closes does not wait for the call it interrupted.
        self._life = threading.RLock()
        # One queue a waiter, and no lock around them: the loop's thread must never wait for an interrupted caller.
        self._bells: set[queue.SimpleQueue[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._relay: RelayWriter | None = None
        self._failure: BaseException | None = None
        self._closed = False

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, begin: GtidPosition | Stored | None) -> None:
        """Take the relay directory and begin to receive; return at once, before there is a connection.

        With a position the log is made to lead there: continued where it already does, else begun again right at the
        position. None continues the log, or starts an empty one where the option `start` says.

        Args:
            begin: the last GTIDs the caller has; or, as our checkpoints keep it, a `Stored` with what else is known of
                the place, so that another server or a binlog that was reset is noticed.

        Raises:
            RelayError: another replica holds the directory, this one was started before, or the disk refuses.
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
                self._thread = threading.Thread(target=self._loop.run_forever, name="mariadb-replica", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """Stop receiving, seal the log, give the directory back. May be called twice; raises no error of the stream."""
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
        """Say where the last whole transaction in the log ends.

        Returns:
            Its `position` (a GtidPosition), its `location` in the relay log (which orders as the stream does),
            `primary` (file and offset in the primary's binlog) and `timestamp` (seconds since 1970, of its commit).

        Raises:
            RelayError: the replica was not started.
            ReplicaError: whatever ended the replica.
        """
        self._raise_failure()
        if self._relay is None:
            raise RelayError("this replica was not started.", hint="Call start() first.")
        return self._relay.head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:
        """Wait until the log goes beyond a place.

        Args:
            location: the `location` of an earlier `head()`.
            timeout_s: how long to wait, in seconds.

        Returns:
            True as soon as it does; False when the time is over, or the replica was closed.

        Raises:
            ReplicaError: as for `head`.
        """
        return self._wait(lambda: self.head().location > location, timeout_s)

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:
        """Wait until the log has everything up to a position.

        Args:
            position: for example what `server_position` gave.
            timeout_s: how long to wait, in seconds.

        Returns:
            True as soon as it has; False when the time is over, or the replica was closed.

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
            # A copy: one exception object raised in several threads would collect all their tracebacks.
            raise copy.copy(failure) from failure

    # -- questions to the primary --------------------------------------------------------------------------------

    def server_position(self) -> GtidPosition:
        """Ask the primary, over a connection of its own, for the last GTIDs in its binlog; `start` is not needed.

        Returns:
            The position, as `SELECT @@gtid_binlog_pos` gives it.

        Raises:
            ReplicaError: the primary cannot be reached, or refuses; or whatever ended the replica.
        """
        return self._ask(latest_position)

    def latest_and_prepared(self) -> Latest:
        """Return the same with the XA transactions that are prepared now."""
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
        """Return the same, and its place on the primary."""
        return self._ask(earliest)

    def fetch_schema(self, selection: Sequence[Selection]) -> dict[tuple[str, str], TableSchema]:
        """Return today's definition of the selected tables: (database, table), or (database, None) for all of it.

        Raises:
            SchemaError: a table asked for by name does not exist, or the account may not see it.
        """
        return self._ask(lambda: read_tables(selection))

    def _ask(self, question: Callable[[], Steps[_Result]]) -> _Result:
        self._raise_failure()
        loop = self._running_loop()
        try:
            return asyncio.run_coroutine_threadsafe(ask(self._config, lambda _: question()), loop).result()
        except concurrent.futures.CancelledError:
            raise DisconnectedError("the replica was closed while it asked the primary.") from None
