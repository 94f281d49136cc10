"""One writer for a relay directory: an advisory lock on a file in it, held as long as the process lives.

The kernel drops the lock when the process dies, so a lock file that lies around means nothing by itself.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Self

from replica.errors import RelayError

if TYPE_CHECKING:
    from pathlib import Path

LOCK_NAME = "relay.lock"


class RelayLock:
    """Taken when made; `close` (or the end of a `with`) gives it back."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / LOCK_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise RelayError(
                f"{directory} is in use by another replica (process {owner}).",
                hint="One replica writes a relay directory: read it while that one runs, or give this one its own.",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
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
