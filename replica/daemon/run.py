"""Daemon: a replica with status file, metrics, health endpoints, monitor and retention.

In: a configuration with a relay directory. Out: the relay log, until SIGTERM or SIGINT (then `run` returns) or a
permanent error (then `run` raises it). The event loop belongs to the replica. Everything else runs in threads, which
start after the relay log is opened and end before it is closed. SIGHUP reloads the options. The password file is read
at every connection. Logs go to standard error, and the program that collects them rotates them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.daemon.http import Endpoints, Guard, HttpServer
from replica.daemon.monitor import Monitor
from replica.daemon.notify import Notifier
from replica.daemon.retain import EVERY_S, Retaining
from replica.daemon.status.lag import EVERY_S as PROGRESS_EVERY_S
from replica.daemon.status.lag import CatchingUp
from replica.daemon.status.observer import Observer
from replica.daemon.status.record import STATUS_NAME, WRITE_EVERY_S, Failure, read_status, write_status
from replica.errors import DiskFullError, RelayError, ReplicaError, describe
from replica.live.client import Replica
from replica.live.progress import Progress
from replica.relay_log.directory.disk import Access, disk_error, grant
from replica.relay_log.directory.head import BEGUN, HEAD_NAME, read_head
from replica.relay_log.directory.identity import IDENTITY_NAME
from replica.relay_log.directory.readers import READERS_NAME, registered_readers
from replica.relay_writer.writer import RelayWriter
from replica.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.config import DaemonConfig
    from replica.daemon.logs import LogWriter
    from replica.daemon.status.record import StatusRecord
    from replica.protocol.gtid import GtidPosition

# A directory without relay files that has traces of earlier ones is refused. A start at `latest` would skip all
# transactions in between. To accept the gap, set `start` to a GTID position or empty the directory.


START_KEYWORDS = ("latest", "earliest")
"""Values of `start` other than a position. A keyword does not show the position at which lost files ended."""


class LastKnown(NamedTuple):
    """The last known position, '' if it is unknown, and the file that records it."""

    position: str
    source: str


def beginning(directory: Path, start: str) -> GtidPosition | None:
    """Return the position of an empty log that continues; None to begin at `start`.

    The caller holds the directory's lock and has published nothing.

    Raises:
        RelayError: the directory had relay files, which were removed.
    """
    if start not in START_KEYWORDS:
        return None
    head = None
    with contextlib.suppress(RelayError):  # damaged, or of another version: other files are read
        head = read_head(directory)
    if head is not None and not head.location.offset and head.primary.position == BEGUN:
        return head.position  # the log has received nothing yet
    known = last_known(directory)
    if known is None:
        return None
    raise lost(directory, known)


def last_known(directory: Path) -> LastKnown | None:
    """Return the last known position of a directory without relay files; None if there is no trace of a log."""
    with contextlib.suppress(RelayError):
        head = read_head(directory)
        if head is not None:
            return LastKnown(str(head.position), HEAD_NAME) if head.location.offset else None
    with contextlib.suppress(RelayError):
        status = read_status(directory)
        if status is not None:
            return LastKnown(status.position.gtid, STATUS_NAME)
    with contextlib.suppress(RelayError):
        readers = sorted(registered_readers(directory), key=lambda reader: reader.location)
        if readers:
            return LastKnown(readers[-1].position, f"{READERS_NAME} ({readers[-1].name})")
    traces = (name for name in (IDENTITY_NAME, READERS_NAME) if (directory / name).exists())
    return next((LastKnown("", name) for name in traces), None)


def lost(directory: Path, known: LastKnown) -> RelayError:
    """Return the error for a directory whose relay files are missing. The hint shows how to continue after `known`."""
    if known.position:
        what = f"{known.source} shows that the log reached {known.position}"
        remedy = f"To continue after it, start once with --start {known.position}"
    else:
        what = f"{known.source} shows that a replica ran here, but nothing shows how far it got"
        remedy = "To continue, start once with --start and the last GTID position that your readers have"
    return RelayError(
        f"The relay files of {directory} are missing: {what}.",
        hint=f"Put the files back if they exist. {remedy}: the primary then sends what it still has, and "
        "refuses what it purged. To begin again at the position of the option start, and skip all changes in between, "
        f"remove the whole folder: rm -r {directory}.",
    )


BEAT_S: Final = 0.5
REMEMBERED_BEATS: Final = 120
"""Number of remembered delays of the loop: one minute, so that no scrape misses the longest delay."""
FULL_DISK_RETRY_S: Final = 1.0
SWITCH_INTERVAL_S: Final = 0.0005
"""Seconds for which another thread may hold the interpreter while the stream waits for it. Python's default of 5 ms
would delay acknowledgements.
"""


class Daemon:
    """Daemon. `await run()` in the main thread's loop."""

    def __init__(self, config: DaemonConfig, directory: Path, log: FilteringBoundLogger, *, reloader: Reloader) -> None:
        self._config = config
        self._directory = directory
        self._log = log
        self._reloader = reloader
        self._progress = Progress(started_at=time.time())
        self._notifier = Notifier()
        self._beat_at = time.monotonic()
        self._loop_delays_s = deque([0.0], maxlen=REMEMBERED_BEATS)
        self._leaving = False

    async def run(self) -> None:
        """Run until a stop is requested.

        Raises:
            ReplicaError: the error that ended the replica, which the status file also contains.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._take_signals()
        try:
            relay = await self._open()
            try:
                await self._stream_with_helpers(relay)
            finally:
                relay.close()
        except asyncio.CancelledError:
            if not self._leaving:
                raise
        except ReplicaError as error:
            self._notifier.status(f"failed: {error.message}")
            self._log.error("failed", **describe(error))
            raise
        except Exception:
            self._log.exception("internal error", part="replica")
            raise
        finally:
            self._notifier.close()

    def _take_signals(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop_once() -> None:
            # Only once: a second signal must not interrupt the goodbye.
            if not self._leaving and task is not None:
                self._leaving = True
                self._notifier.stopping()
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop_once)
        loop.add_signal_handler(signal.SIGHUP, self._reloader.ask)

    async def _open(self) -> RelayWriter:
        """Open the relay log. Wait while the disk is full, as during streaming."""
        config, said = self._config, False
        try:
            grant(self._directory, Access.parse(config.relay_access))
        except OSError as error:
            raise disk_error(self._directory, error) from error
        while True:
            try:
                return RelayWriter.open(
                    self._directory,
                    start=lambda: beginning(self._directory, config.start),
                    max_file_bytes=config.relay_max_file_bytes,
                    max_file_age_s=config.relay_max_file_age_s,
                )
            except DiskFullError as error:
                if not said:
                    said = True
                    self._notifier.status(f"disk full: {error.message}")
                    self._log.error("disk full", message=error.message, hint=error.hint)
            await asyncio.sleep(FULL_DISK_RETRY_S)

    async def _stream_with_helpers(self, relay: RelayWriter) -> None:
        config, log = self._config, self._log
        replica = Replica(
            config,
            relay,
            log=log,
            progress=self._progress,
            owner="daemon",
            wait_for_readers=config.slow_readers == "pause",
        )
        monitor = Monitor(
            config, endpoint=lambda: replica.endpoint, needed_file=lambda: relay.head.primary.file, log=log
        )
        retaining = Retaining(config, self._directory, log)

        def in_our_folder(work: Callable[[], None]) -> Callable[[], None]:
            def guarded() -> None:
                if relay.names.ours:
                    work()

            return guarded

        observer = Observer(
            config,
            relay,
            self._progress,
            monitor=monitor,
            retaining=retaining,
            loop_delay_s=lambda: max(self._loop_delays_s),
            errors=lambda: {part.name: part.errors for part in periodic},
        )
        periodic = (
            Periodic("status", WRITE_EVERY_S, in_our_folder(lambda: self._write_status(observer)), log),
            Periodic("retention", EVERY_S, in_our_folder(retaining.turn), log),
            Periodic("progress", PROGRESS_EVERY_S, CatchingUp(observer.record, log).turn, log),
        )
        server = None
        if config.http_listen is not None:
            endpoints = Endpoints(observer, self._progress, silent_s=lambda: time.monotonic() - self._beat_at)
            server = HttpServer(config.http_listen, endpoints.routes(), Guard.of(config))
        if server is not None:
            server.start()
        monitor.start()
        for part in periodic:
            part.start()
        place = {"relay_dir": str(self._directory), "position": str(relay.position)}
        log.info("started", **place, http=server.address if server else "", version=__version__)
        reloading = asyncio.get_running_loop().create_task(self._reloader.serve(replica, retaining))
        try:
            await self._receive(replica, relay)
        except Exception as error:
            observer.failed = _failure(error)
            raise
        finally:
            reloading.cancel()
            monitor.stop()
            for part in periodic:
                part.stop()
            if server is not None:
                server.stop()
            with contextlib.suppress(OSError, RelayError):  # no caller can receive an error at this point
                in_our_folder(lambda: self._write_status(observer))()

    async def _receive(self, replica: Replica, relay: RelayWriter) -> None:
        beat = asyncio.get_running_loop().create_task(self._beat())
        # Imported objects stay forever. Without the freeze, each full collection would walk them while a COMMIT may
        # wait.
        gc.collect()
        gc.freeze()
        self._notifier.ready()
        try:
            await replica.run()
        except asyncio.CancelledError:
            with contextlib.suppress(DiskFullError):  # acknowledged groups are on disk in any case
                relay.sync()
            self._log.info("stopped", position=str(relay.position))
            raise
        finally:
            beat.cancel()

    async def _beat(self) -> None:
        """Record that the loop runs, for /healthz and for systemd's watchdog."""
        watchdog_s = self._notifier.watchdog_s
        while True:
            asleep_at = time.monotonic()
            await asyncio.sleep(BEAT_S)
            self._beat_at = time.monotonic()
            self._loop_delays_s.append(self._beat_at - asleep_at - BEAT_S)
            if watchdog_s is not None:
                self._notifier.alive()

    def _write_status(self, observer: Observer) -> None:
        record = observer.record(fresh=True)
        write_status(self._directory, record)
        if record.failure is None:
            self._notifier.status(_line(record))


def _failure(error: Exception) -> Failure:
    name = type(error).__name__
    if isinstance(error, ReplicaError):
        return Failure(error=name, message=error.message, hint=error.hint, exit_code=error.exit_code)
    return Failure(error=name, message="a bug in this program.", hint="Its log has the traceback.", exit_code=1)


def _line(record: StatusRecord) -> str:
    lag = "unknown" if record.behind.seconds is None else f"{record.behind.seconds:.0f} s"
    return f"{record.state}, {lag} behind, at {record.position.gtid or 'the beginning'}"


# A periodic task that fails is repeated, because a replica must not stop if a figure of its status cannot be computed.
# A ReplicaError or an error of the disk is logged only if its text changes. Any other error is a bug and is logged with
# its traceback.

JOIN_TIMEOUT_S = 5.0
"""Timeout of `stop` in seconds. One run takes milliseconds; a disk that hangs must not keep the daemon from ending."""


class Periodic:
    """Thread that repeats a task. `errors` counts the failed runs."""

    def __init__(self, name: str, every_s: float, work: Callable[[], None], log: FilteringBoundLogger) -> None:
        self.errors = 0
        self.name = name
        self._every_s = every_s
        self._work = work
        self._log = log
        self._said = ""
        self._wanted = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"replica-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. No run begins after this."""
        self._ended = True
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._ended:
            try:
                self._work()
                self._said = ""
            except (ReplicaError, OSError) as error:
                self._failed(str(error), trace=False)
            except Exception as error:  # noqa: BLE001  (see above: logged, counted, repeated)
                self._failed(repr(error), trace=True)
            self._wanted.wait(self._every_s)
            self._wanted.clear()

    def _failed(self, text: str, *, trace: bool) -> None:
        self.errors += 1
        if text != self._said:
            self._said = text
            self._log.error("internal error" if trace else "failed turn", part=self.name, error=text, exc_info=trace)


# A reload with unreadable or invalid options changes nothing and logs the reason. The connection stays, unless its
# server is no longer among the hosts.


RELOADED: Final = frozenset(
    {"host", "port", "unix_socket", "retain_s", "retain_bytes", "relay_max_bytes", "reader_expiry_s", "log_level"}
)
"""Options that change without a restart: the servers, the retention, and the log level."""


class Reloader:
    """Handler of SIGHUP. Call `ask()` in the loop's thread; `serve()` is the task that does the work.

    Args:
        running: the configuration with which the daemon was started.
        read_config: reads the configuration again from its sources; it raises ConfigError.
        logs: the log, whose level may change.
    """

    def __init__(self, running: DaemonConfig, read_config: Callable[[], DaemonConfig], logs: LogWriter) -> None:
        self._running = running
        self._read_config = read_config
        self._logs = logs
        self._log: FilteringBoundLogger = logs.logger
        self._requested = asyncio.Event()

    def ask(self) -> None:
        """Request a reload. Before the relay log is open, the request waits."""
        self._requested.set()

    async def serve(self, replica: Replica, retaining: Retaining) -> None:
        """Handle each request, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                # In a thread, because a disk that hangs must not keep the loop from acknowledging.
                new = await asyncio.to_thread(self._read_config)
            except ReplicaError as error:
                self._log.error("not reloaded", **describe(error))
                continue
            except Exception:  # noqa: BLE001  (a bug here must not end the replica)
                self._log.exception("internal error", part="reload")
                continue
            self._apply(new, replica, retaining)

    def _apply(self, new: DaemonConfig, replica: Replica, retaining: Retaining) -> None:
        different = differences(self._running, new)
        changed = [name for name in different if name in RELOADED]
        self._running = self._running.model_copy(update={name: getattr(new, name) for name in changed})
        replica.reload(self._running)
        retaining.reload(self._running)
        self._logs.set_level("info")  # so that this line is written at any old and new level
        self._log.info(
            "reloaded",
            changed=", ".join(changed),
            needs_restart=", ".join(name for name in different if name not in RELOADED),
        )
        self._logs.set_level(self._running.log_level)


def differences(running: DaemonConfig, new: DaemonConfig) -> list[str]:
    """Return the options that differ, in the order of the table. Two random server ids do not count as different."""
    drawn = {"server_id"} - running.model_fields_set - new.model_fields_set
    return [
        name
        for name in type(running).model_fields
        if name not in drawn and getattr(running, name) != getattr(new, name)
    ]
