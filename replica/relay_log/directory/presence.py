"""The check that files which are held open still have their names: bytes in a file without one are lost with its
descriptor.

In: a descriptor, and the path it was opened by. Out: whether that path names the same file now. A file that was removed
has no name; one that was moved has another; after `rm -r` and a start of another process the path names a file of
theirs. All three look alike to a process that goes on writing: no system call fails.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Self

from replica.errors import RelayError

if TYPE_CHECKING:
    from pathlib import Path

WATCH_EVERY_S = 0.5
"""How often all files are looked at, beside the look at one before each ACK: four system calls."""


class NamedFile(NamedTuple):
    """A file as it was when it was opened: `path` named it then."""

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, descriptor: int, path: Path) -> Self:
        status = os.fstat(descriptor)
        return cls(str(path), status.st_dev, status.st_ino)

    def has_its_name(self) -> bool:
        """Tell whether it has its name, by one system call. An OSError is raised where the system cannot tell."""
        try:
            status = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return status.st_ino == self.inode and status.st_dev == self.device


def ensure_named(directory: Path, *files: NamedFile) -> None:
    """Raise RelayError for the first of the files that has lost its name, OSError where the system cannot tell."""
    for file in files:
        if not file.has_its_name():
            raise removed(directory, file.path)


def removed(directory: Path, path: str) -> RelayError:
    return RelayError(
        f"{path} was removed, moved or replaced while it was written: nothing more is acknowledged.",
        hint=f"Leave {directory} to the replica, and remove old files with mariadb-replica purge. Start it again: it "
        "goes on behind what is left of the log, or says what to do if nothing is.",
    )
