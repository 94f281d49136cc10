"""Monitoring of the daemon that writes a relay folder, without disturbing it.

`DaemonWatch.epoch` changes whenever a writer starts again. `DaemonWatch.check` logs when the daemon stops and when it
is back, and raises after a wait that lasts too long. A running daemon rewrites its status file about every second. The
watch tests the daemon's lock only if that file stands still. The test holds the lock for a moment, and a daemon that
starts just then would take it for another daemon.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from replica.daemon.status.file import STATUS_NAME, read_status
from replica.errors import RelayError
from replica.relay_log.directory.head import HEAD_NAME
from replica.relay_log.directory.lock import LOCK_NAME, lock_holder

if TYPE_CHECKING:
    from pathlib import Path

LOOK_EVERY_S: Final = 2.0
"""Seconds between two checks of the daemon while a query is idle."""
REPEAT_S: Final = 60.0
"""Seconds between two log messages about the same wait."""

_log = logging.getLogger(__name__)

Stamp = tuple[int, int]
"""Inode and modification time in ns of a file: both change when a file is replaced."""


def is_held(directory: Path) -> bool:
    """Return True if a process writes a relay log in `directory` now; False also if none ever did.

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
    """The watch of one query. The planning thread calls it."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._status = _stamp(directory / STATUS_NAME)
        self._next_look_s = 0.0
        self._down_since_s: float | None = None
        self._next_word_s = 0.0

    @property
    def epoch(self) -> tuple[Stamp, int]:
        """The stamps that identify the running writer. A writer stamps the lock file when it starts, and a folder made
        again has new files.
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
        """Check the daemon, at most every LOOK_EVERY_S. The caller calls this while no groups arrive.

        Raises:
            RelayError: the daemon has been down for longer than daemonTimeout.
        """
        now = time.monotonic()
        if now < self._next_look_s:
            return
        self._next_look_s = now + LOOK_EVERY_S
        status = _stamp(self._directory / STATUS_NAME)
        alive = status != self._status or is_held(self._directory)
        self._status = status
        if alive:
            self.seen()
            return
        if self._down_since_s is None:
            self._down_since_s = self._next_word_s = now
        if now >= self._next_word_s:
            self._next_word_s = now + REPEAT_S
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
        """Note that the daemon runs."""
        if self._down_since_s is not None:
            _log.warning("the daemon writes %s again, after %.0f s", self._directory, self.down_s)
            self._down_since_s = None
