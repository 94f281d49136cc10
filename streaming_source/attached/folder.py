"""Decision whether the folder that relayDir names is a daemon's, so that the query reads the daemon's relay log.

`attached_directory` returns the folder to attach to, or None if the query runs its own replica. A daemon marks its
folder permanently. A query attaches to such a folder even while the daemon is down, and never writes there. An unused
folder becomes the query's own if the options name a server. If another process has just taken a folder and not marked
it, the query waits for the mark. Without a server, a folder that has never been a relay log is an error, and so is the
folder of another query.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from replica.daemon.status.record import STATUS_NAME, read_status
from replica.errors import ConfigError, RelayError
from replica.relay_log.directory.head import HEAD_NAME
from replica.relay_log.directory.identity import read_identity
from replica.relay_log.directory.lock import LOCK_NAME, lock_holder
from streaming_source.options.source_options import camel

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.options.source_options import SourceOptions
# `DaemonWatch.epoch` changes whenever a writer starts again. `DaemonWatch.check` logs when the daemon stops and when
# it is back, and raises after a wait that lasts too long. A running daemon rewrites its status file about every
# second. The watch tests the daemon's lock only if this file does not change. The test holds the lock for a moment, and
# a daemon that starts just then would take the watch for another daemon.


CHECK_EVERY_S: Final = 2.0
"""Seconds between two checks of the daemon while a query is idle."""
REPEAT_S: Final = 60.0
"""Seconds between two log messages about the same wait."""
_log = logging.getLogger(__name__)

Stamp = tuple[int, int]
"""Inode and modification time in ns of a file: both change when a file is replaced."""


def is_locked(directory: Path) -> bool:
    """Return True if a process writes a relay log in `directory` now. Return False if no process ever did.

    Raises:
        RelayError: the lock cannot be read.
    """
    try:
        return lock_holder(directory) is not None
    except OSError as error:
        raise RelayError(
            f"{directory / LOCK_NAME} cannot be read: {error.strerror or error}.",
            hint="The account of the query needs to read the daemon's folder and its files.",
        ) from None


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


class DaemonWatch:
    """Watch over the daemon for one query. The planning thread calls it."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._status = _stamp(directory / STATUS_NAME)
        self._next_check_s = 0.0
        self._down_since_s: float | None = None
        self._next_message_s = 0.0

    @property
    def epoch(self) -> tuple[Stamp, int]:
        """Stamps that identify the running writer.

        A writer stamps the lock file when it starts, and a folder that is created again has new files.
        """
        return _stamp(self._directory / LOCK_NAME), _stamp(self._directory / HEAD_NAME)[0]

    @property
    def receives(self) -> bool:
        """Whether the daemon reports that it is connected, and so knows its position."""
        status = read_status(self._directory)
        return status is not None and status.state in ("streaming", "paused")

    @property
    def down_s(self) -> float:
        """Seconds since the daemon was first seen to be down; 0 while it runs."""
        return 0.0 if self._down_since_s is None else time.monotonic() - self._down_since_s

    def check(self) -> None:
        """Check the daemon, at most every CHECK_EVERY_S. The caller calls this while no groups arrive.

        Raises:
            RelayError: the daemon has been down for longer than daemonTimeout.
        """
        now = time.monotonic()
        if now < self._next_check_s:
            return
        self._next_check_s = now + CHECK_EVERY_S
        status = _stamp(self._directory / STATUS_NAME)
        alive = status != self._status or is_locked(self._directory)
        self._status = status
        if alive:
            self.seen()
            return
        if self._down_since_s is None:
            self._down_since_s = self._next_message_s = now
        if now >= self._next_message_s:
            self._next_message_s = now + REPEAT_S
            _log.warning(
                "no daemon writes %s (for %.0f s): waiting for it, %.0f s at most",
                *(self._directory, now - self._down_since_s, self._timeout_s),
            )
        if now - self._down_since_s > self._timeout_s:
            raise RelayError(
                f"no daemon has been writing {self._directory} for {now - self._down_since_s:.0f} s.",
                hint="Start the daemon again, then the query. mariadb-replica status shows how the daemon ended. "
                "daemonTimeout sets how long a query waits for it.",
            )

    def seen(self) -> None:
        """Record that the daemon runs."""
        if self._down_since_s is not None:
            _log.warning("the daemon writes %s again, after %.0f s", self._directory, self.down_s)
            self._down_since_s = None


RECEIVING: Final = frozenset(
    (
        *("server_id", "report_host", "heartbeat_s", "net_write_timeout_s"),
        *("gtid_ignore_duplicates", "semi_sync", "ack_policy", "relay_max_file_bytes", "relay_max_file_age_s"),
        *("relay_max_bytes", "min_free_bytes", "reconnect_retry_s"),
    )
)
"""Options of a replica that a daemon takes from its own configuration."""

UNMARKED_S: Final = 10.0
"""Seconds to wait for the mark. A process loads a kernel between taking and marking a folder. If it is stopped in
between, it never marks the folder.
"""
_POLL_S: Final = 0.1


def attached_directory(options: SourceOptions) -> Path | None:
    """Return the daemon's folder as an absolute path, or None if the query runs its own replica.

    Raises:
        ConfigError: no server is named, and the folder is another query's.
        RelayError: no server is named, and there is no relay log; or the folder cannot be read.
    """
    if options.relay_dir is None:
        return None
    directory = options.relay_dir.absolute()
    identity = read_identity(directory)
    deadline = time.monotonic() + UNMARKED_S
    while identity is None and options.replica is not None and is_locked(directory) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        identity = read_identity(directory)
    if identity is None and options.replica is not None:
        identity = read_identity(directory)  # the process may have marked the folder and ended between the two checks
    if identity is not None:
        if identity.owner == "daemon":
            return directory
        if options.replica is None:
            raise ConfigError(
                f"relayDir {directory} belongs to a query that runs its own replica; only a daemon's can be shared.",
                hint="Name the relay_dir of a running mariadb-replica. Or set host and user, so that this query runs "
                "its own replica, with another relayDir or none.",
            )
        return None
    if options.replica is None:
        from replica.relay_log.directory.head import (
            HEAD_NAME,  # imports numba, which a load() without a daemon's log does not need
        )

        if not (directory / HEAD_NAME).exists():
            raise RelayError(
                f"there is no relay log in {directory}.",
                hint="Start the daemon that writes it (mariadb-replica run --relay-dir …) first, check relayDir and "
                "its permissions, or set host and user: then the query runs its own replica.",
            )
        return directory
    return None


def warn_of_unused(options: SourceOptions) -> None:
    """Log which of the given options have no effect in a query that is attached."""
    given = options.replica.model_fields_set & RECEIVING if options.replica else None
    if given:
        _log.warning(
            "relayDir %s belongs to a daemon: the daemon's configuration applies, and %s of this query has no effect",
            *(options.relay_dir, ", ".join(sorted(map(camel, given)))),
        )


def primary_of(directory: Path) -> str:
    """Return the primary as the daemon names it, host:port, or '' if the daemon has never connected."""
    status, identity = read_status(directory), read_identity(directory)
    if status is not None and status.connection.endpoint:
        return status.connection.endpoint
    # The status lags by a second, and the identity drops a connection that was closed in good order.
    return identity.connections[-1].endpoint if identity is not None and identity.connections else ""
