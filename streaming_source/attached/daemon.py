"""The life of the daemon behind a relay folder, as a reader can tell it without standing in its way.

In: the folder. Out: `epoch`, which changes whenever a writer started again, and `wait_is_over`, which says so in the
log when the daemon has gone and when it is back, and ends a wait that lasts too long. A daemon that lives rewrites its
status file every second or so; only where that stands still is its lock looked at, because the look takes the lock for
a moment, and a daemon that starts just then would take it for another one.
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
"""How often an idle query looks after the daemon."""
REPEAT_S: Final = 60.0
"""How often a wait is logged again."""

_log = logging.getLogger(__name__)

Stamp = tuple[int, int]
"""What changes when a file is written again: its inode and when its content changed."""


def is_held(directory: Path) -> bool:
    """Tell whether a process writes a relay log there now; False too where no process ever did.

    Raises:
        RelayError: the lock cannot be looked at.
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
    """One a query; called by the thread that plans."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._status = _stamp(directory / STATUS_NAME)
        self._next_look_s = 0.0
        self._down_since_s: float | None = None
        self._next_word_s = 0.0

    @property
    def epoch(self) -> tuple[Stamp, int]:
        """The stamp of the running writer: it notes itself in the lock file when it starts, and a folder made again has
        new files.
        """
        return _stamp(self._directory / LOCK_NAME), _stamp(self._directory / HEAD_NAME)[0]

    @property
    def receives(self) -> bool:
        """Whether the daemon says that it is connected: then it knows where it is."""
        status = read_status(self._directory)
        return status is not None and status.state in ("streaming", "paused")

    @property
    def down_s(self) -> float:
        """The seconds for which the daemon has been seen to be down; 0 while it runs."""
        return 0.0 if self._down_since_s is None else time.monotonic() - self._down_since_s

    def check(self) -> None:
        """Look at the daemon now and then. The caller calls it while nothing comes.

        Raises:
            RelayError: the daemon has been down for longer than the query waits.
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
                hint="Start it again (mariadb-replica status says how it ended), then the query; daemonTimeout is how "
                "long a query waits.",
            )

    def seen(self) -> None:
        """Note that the daemon lives."""
        if self._down_since_s is not None:
            _log.warning("the daemon writes %s again, after %.0f s", self._directory, self.down_s)
            self._down_since_s = None
