"""Check that open files still have their names, because bytes in a file without a name are lost.

A removed file has no name, and a moved file has another one. After `rm -r` and a restart, the path may name a file of
another process. In all three cases, writes to the open descriptor succeed, so only an explicit check detects them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Self

from replica.errors import RelayError

if TYPE_CHECKING:
    from pathlib import Path

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
