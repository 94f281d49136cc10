"""Lock that allows one writer per relay directory: an advisory lock on a file, held for the life of the process.

The kernel releases the lock when the process dies, so the mere existence of the lock file means nothing. If the file is
removed, the lock does not exclude others any more; the holder detects this with `RelayLock.file`.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, Self

from replica.errors import RelayError
from replica.relay_log.directory.access import make_folder, protect
from replica.relay_log.directory.presence import NamedFile

if TYPE_CHECKING:
    from pathlib import Path

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
    """Return the process that holds the lock, "unknown" if its id is missing; None if no process does. OSErrors are
    passed on.
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
