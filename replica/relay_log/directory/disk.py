"""Write helpers for the files of a relay directory, and typed errors for the system's errors.

`disk_error` maps a full disk or quota to DiskFullError, because this is the only error that ends without an operator.
Every other cause (an I/O error, a read-only file system, a missing folder) becomes RelayError.
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
    """Return the error for an `OSError` during a write to `directory`: DiskFullError, or RelayError for other
    causes.
    """
    what = f"Writing the relay log {directory} failed: {error.strerror or error}"
    if error.errno in FULL:
        return DiskFullError(
            f"{what}.",
            hint="Free space there, or raise the quota. Receiving then continues; everything acknowledged is on disk.",
        )
    if error.errno == errno.ELOOP:
        return RelayError(
            f"{error.filename or directory} is a symbolic link.",
            hint="Remove it. The replica does not write the relay log through links, which may lead anywhere.",
        )
    return RelayError(
        f"{what}.", hint="Repair the disk or the folder, then start again: nothing that was acknowledged is lost."
    )


def free_bytes(directory: Path) -> int:
    """Return the bytes that this user may still write there (statvfs f_bavail). A quota shows only when it is
    reached.
    """
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of `data` at the descriptor's offset. A disk that fills up may accept a part before it raises the
    error.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace a small file atomically for its readers, without fsync. OSErrors are passed on.

    The file is newly created and never written through a link, because others may write into the folder. `mode` applies
    whatever the umask; by default, the file gets the mode of its folder's files.
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
        temporary.unlink(missing_ok=True)  # frees its bytes on a full disk
        raise
    finally:
        os.close(descriptor)
    temporary.rename(path)
