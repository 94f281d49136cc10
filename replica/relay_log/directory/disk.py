"""Write helpers for the files of a relay directory, and typed errors for the system's errors.

`disk_error` maps a full disk or quota to DiskFullError, because a full disk is the only error that may end without an
operator. Every other cause (an I/O error, a read-only file system, a missing folder) becomes RelayError.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from replica.errors import ConfigError, DiskFullError, RelayError

if TYPE_CHECKING:
    from pathlib import Path
# The option `relay_access` selects the rights, `grant` applies them to the directory, and `protect` applies them to a
# new file. A relay log holds the rows of every table, so other users have no access by default. Only the owner may
# write. The folder `readers/` is the exception: members of the group write there to register.


FOLDER_MODE: Final = 0o750
_OURS: Final = "relay.*"
"""Pattern of the relay log's own files; other files in the folder are not touched."""
_ALSO_FOUND: Final = ("readers", "lost+found")
"""Other names allowed in a relay directory: the readers' folder, and the folder that a new file system contains."""
_NAMED: Final = 3
"""Maximum number of foreign files that an error names."""
_READ: Final = 0o444
_WHO: Final = {"owner": 0o700, "group": 0o750, "all": 0o755}
_WORD: Final = re.compile(r"owner|group|all|group:(?P<name>[^\s:]+)")


class Access(NamedTuple):
    """Access rights of a directory.

    `mode` is the mode of the directory. `group` is its group, None for the group of the process.
    """

    mode: int
    group: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse 'owner', 'group', 'group:NAME' or 'all'; ValueError for any other text."""
        match = _WORD.fullmatch(text.strip())
        if match is None:
            raise ValueError("is not one of owner, group, group:NAME and all")
        return cls(_WHO[text.strip().partition(":")[0]], match["name"])


def make_folder(directory: Path) -> None:
    """Create a folder for its owner and group; an existing folder stays unchanged. OSErrors are passed on."""
    if not directory.is_dir():
        directory.mkdir(FOLDER_MODE, parents=True, exist_ok=True)


def grant(directory: Path, access: Access) -> None:
    """Set a relay directory and its files to the mode and group of `access`.

    A directory of another user stays unchanged, because only its owner may change it.

    Raises:
        ConfigError: The group does not exist, or other users of the directory would lose access.
        RelayError: The user may not give the directory to the group.
        OSError: The directory cannot be created.
    """
    make_folder(directory)
    found = directory.stat()
    if stat.S_IMODE(found.st_mode) & 0o007 & ~access.mode:
        _refuse_shared(directory)
    if access.group is not None:
        _give(directory, access.group, found.st_gid)
    wanted = stat.S_IMODE(found.st_mode) & ~0o077 | access.mode
    if access.mode & stat.S_IRGRP:
        wanted |= found.st_mode & stat.S_IWGRP  # a group with write access keeps it
    if wanted != stat.S_IMODE(found.st_mode):
        with contextlib.suppress(PermissionError):
            directory.chmod(wanted)
    _protect_existing(directory)


def protect(descriptor: int, directory: Path) -> None:
    """Set the mode and group of a new file to those of its directory."""
    folder, file = directory.stat(), os.fstat(descriptor)
    with contextlib.suppress(PermissionError):  # the file or the group is not ours, and stays unchanged
        if file.st_gid != folder.st_gid:
            os.fchown(descriptor, -1, folder.st_gid)
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o600 | folder.st_mode & _READ)


def open_to_others(directory: Path) -> bool:
    """Return True if users outside the group can read a directory, by its own mode and that of its parents."""
    readable = stat.S_IROTH | stat.S_IXOTH
    if directory.stat().st_mode & readable != readable:
        return False
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in directory.resolve().parents)


def _refuse_shared(directory: Path) -> None:
    """Refuse a shared folder such as /tmp or /var/lib, because closing it would lock out its other users."""
    others = sorted(path.name for path in directory.iterdir() if not path.match(_OURS) and path.name not in _ALSO_FOUND)
    if not others:
        return
    raise ConfigError(
        f"{directory} is not a folder for the relay log alone: every user may enter it, and it holds "
        f"{', '.join(others[:_NAMED])}{' and more' if len(others) > _NAMED else ''}.",
        hint="Set relay_dir to a folder that holds the relay log alone. If it has to be this one, close it with "
        "chmod o= first, or let everyone read the relay log with relay_access=all.",
    )


def _protect_existing(directory: Path) -> None:
    """Update the files that another `relay_access` or an earlier version created."""
    for path in directory.glob(_OURS):
        with contextlib.suppress(OSError):  # the file is deleted, a link, or of another user
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                protect(descriptor, directory)
            finally:
                os.close(descriptor)


def _give(directory: Path, group: str, now: int) -> None:
    try:
        wanted = grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(
            f"relay_access=group:{group}: there is no group {group!r} on this machine.",
            hint="Create the group, or name another one. Its members can read the relay log.",
        ) from None
    if wanted == now:
        return
    try:
        os.chown(directory, -1, wanted)
    except PermissionError:
        raise RelayError(
            f"{directory} cannot be given to the group {group!r}.",
            hint="The user of the replica has to own the folder and to be a member of that group.",
        ) from None


FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def disk_error(directory: Path, error: OSError) -> RelayError:
    """Return the error for an `OSError` during a write to `directory`.

    A full disk or quota is a DiskFullError, any other cause a RelayError.
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
    """Return the bytes that this user may still write to the disk of `directory` (statvfs f_bavail).

    The result ignores quotas, which show only when they are reached.
    """
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of `data` at the descriptor's offset.

    A disk that fills up may accept a part of `data` before it raises the error.
    """
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(directory: Path) -> None:
    """Make the names of the files in a directory durable."""
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
