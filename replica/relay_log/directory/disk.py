"""The writing that every file of a relay directory needs: all of the bytes written, and the system's errors told apart.

In: a descriptor or a directory. Out: nothing, or the typed error. A full disk or quota is the one error that passes by
itself, so it has its own type; any other (an I/O error, a read-only file system, a missing folder) is for a person.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from replica.errors import DiskFullError, RelayError
from replica.relay_log.directory.access import protect

if TYPE_CHECKING:
    from pathlib import Path

FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def disk_error(directory: Path, error: OSError) -> RelayError:
    """Make the error for an `OSError` met while writing into `directory`: DiskFullError, or RelayError for all
    others.
    """
    what = f"Writing the relay log {directory} failed: {error.strerror or error}"
    if error.errno in FULL:
        return DiskFullError(
            f"{what}.",
            hint="Free space there, or raise the quota: what was acknowledged is on disk, and receiving goes on then.",
        )
    if error.errno == errno.ELOOP:
        return RelayError(
            f"{error.filename or directory} is a symbolic link.",
            hint="Remove it: what is written into the relay log goes through no link, which may lead anywhere.",
        )
    return RelayError(
        f"{what}.", hint="Repair the disk or the folder, then start again: nothing that was acknowledged is lost."
    )


def free_bytes(directory: Path) -> int:
    """Return what this user may still write there (statvfs f_bavail). A quota is not counted: it shows when it is
    reached.
    """
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write at the descriptor's place; a disk that fills up takes a part before it refuses the rest."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(directory: Path) -> None:
    """Make the names in a directory as durable as the files they name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Put a small file in the place of another, at once for its readers; not made durable. An OSError is raised as it
    comes.

    The file is made new and never written through a link: others may write into the folder. `mode`, whatever the umask,
    or that of the files of its folder.
    """
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if mode is None:
            protect(descriptor, path.parent)
        else:
            os.fchmod(descriptor, mode)
        write_all(descriptor, data)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs its bytes
        raise
    finally:
        os.close(descriptor)
    temporary.rename(path)
