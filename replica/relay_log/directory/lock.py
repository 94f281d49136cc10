"""Lock that allows one writer per relay directory: an advisory lock on a file, held for the life of the process.

The kernel releases the lock when the process dies, so the mere existence of the lock file means nothing. If the lock
file is removed, another process can lock a new file of that name. The first holder detects the removal with
`RelayLock.file`.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from replica.errors import RelayError
from replica.relay_log.directory.disk import make_folder, protect

if TYPE_CHECKING:
    from pathlib import Path
# A removed file has no name, and a moved file has another one. After `rm -r` and a restart, the path may name a file
# of another process. In all three cases, writes to the open descriptor succeed, so only an explicit check detects
# them.


WATCH_EVERY_S = 0.5
"""Interval in seconds at which all files are checked with four system calls. One file is also checked before each
ACK.
"""


class NamedFile(NamedTuple):
    """File identity at the time of opening, when `path` named it."""

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, descriptor: int, path: Path) -> Self:
        status = os.fstat(descriptor)
        return cls(str(path), status.st_dev, status.st_ino)

    def has_its_name(self) -> bool:
        """Return True if the path still names the file, with one system call; other OSErrors are passed on."""
        try:
            status = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return status.st_ino == self.inode and status.st_dev == self.device


def ensure_named(directory: Path, *files: NamedFile) -> None:
    """Raise RelayError for the first file that has lost its name; other OSErrors are passed on."""
    for file in files:
        if not file.has_its_name():
            raise removed(directory, file.path)


def removed(directory: Path, path: str) -> RelayError:
    return RelayError(
        f"{path} was removed, moved or replaced while it was written: nothing more is acknowledged.",
        hint=f"Leave {directory} to the replica, and remove old files with mariadb-replica purge. Start it again: it "
        "continues after the last transaction left in the log, or says what to do if none is left.",
    )


LOCK_NAME = "relay.lock"
_PID_BYTES = 16

# `lock_holder` takes the lock for a moment, shared, so a busy lock does not always mean another replica.
_ATTEMPTS = 20
_PAUSE_S = 0.01


class RelayLock:
    """Lock of a relay directory, acquired by the constructor and released by `close` or the end of a `with` block."""

    def __init__(self, directory: Path) -> None:
        make_folder(directory)
        path = directory / LOCK_NAME
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            if not _taken(descriptor):
                owner = _owner(descriptor)
                os.close(descriptor)
                raise RelayError(
                    f"{directory} is in use by another replica (process {owner}).",
                    hint="Only one replica may write a relay directory. Read it while that one runs, or give this "
                    "replica its own directory.",
                )
            self.file = NamedFile.of(descriptor, path)
            if self.file.has_its_name():
                break
            os.close(descriptor)  # removed before the lock: another process may hold the file with this name
        protect(descriptor, directory)
        # The text has a constant length and overwrites the previous one, so it needs no space on a full disk.
        os.pwrite(descriptor, f"{os.getpid():<{_PID_BYTES - 1}}\n".encode("ascii"), 0)
        self.directory = directory
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def lock_holder(directory: Path) -> str | None:
    """Return the id of the process that holds the lock; None if no process holds it.

    If the lock file has no process id, return "unknown". OSErrors are passed on.
    """
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(descriptor)
    finally:
        os.close(descriptor)
    return None


def _taken(descriptor: int) -> bool:
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_S)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, _PID_BYTES, 0).decode("ascii", "replace").strip() or "unknown"
