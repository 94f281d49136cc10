"""The users who may read a relay directory: its own mode and group say it, and every file that is made in it follows
them.

In: a directory, or the option `relay_access`; descriptors of new files. Out: modes and groups, whatever the umask. A
relay log holds the rows of every table: other users of the machine are kept out unless they are let in. No one but the
owner writes; `readers/` alone is written by the group, which is how its members register.
"""

from __future__ import annotations

import contextlib
import grp
import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from replica.errors import ConfigError, RelayError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER_MODE: Final = 0o750
_OURS: Final = "relay.*"
"""Whatever else lies there is not."""
_ALSO_FOUND: Final = ("readers", "lost+found")
"""The rest of a folder of ours: what readers register in, and what a file system of its own begins with."""
_NAMED: Final = 3
"""The number of names that an error tells of what else lies there."""
_READ: Final = 0o444
_WHO: Final = {"owner": 0o700, "group": 0o750, "all": 0o755}
_WORD: Final = re.compile(r"owner|group|all|group:(?P<name>[^\s:]+)")


class Access(NamedTuple):
    """The access to a directory. `mode` is the directory's; `group` has it instead of the process's own."""

    mode: int
    group: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read 'owner', 'group', 'group:NAME' or 'all'; ValueError for anything else."""
        match = _WORD.fullmatch(text.strip())
        if match is None:
            raise ValueError("is none of owner, group, group:NAME and all")
        return cls(_WHO[text.strip().partition(":")[0]], match["name"])


def make_folder(directory: Path) -> None:
    """Make a folder for its owner and its group; one that exists stays as it is. An OSError is raised as it comes."""
    if not directory.is_dir():
        directory.mkdir(FOLDER_MODE, parents=True, exist_ok=True)


def grant(directory: Path, access: Access) -> None:
    """Bring a directory of ours, with the files in it, to the mode and group of `access`.

    One of another user is its owner's business.

    Raises:
        ConfigError: there is no such group, or others use the directory too and it would be closed to them.
        RelayError: this user may not give the directory to that group.
        OSError: the directory cannot be made.
    """
    make_folder(directory)
    found = directory.stat()
    if stat.S_IMODE(found.st_mode) & 0o007 & ~access.mode:
        _refuse_a_shared_one(directory)
    if access.group is not None:
        _give(directory, access.group, found.st_gid)
    wanted = stat.S_IMODE(found.st_mode) & ~0o077 | access.mode
    if access.mode & stat.S_IRGRP:
        wanted |= found.st_mode & stat.S_IWGRP  # a group that may write there goes on to
    if wanted != stat.S_IMODE(found.st_mode):
        with contextlib.suppress(PermissionError):
            directory.chmod(wanted)
    _bring_along(directory)


def protect(descriptor: int, directory: Path) -> None:
    """Give a new file in `directory` its mode and its group."""
    folder, file = directory.stat(), os.fstat(descriptor)
    with contextlib.suppress(PermissionError):  # a file, or a group, that is not ours: as it is
        if file.st_gid != folder.st_gid:
            os.fchown(descriptor, -1, folder.st_gid)
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o600 | folder.st_mode & _READ)


def open_to_others(directory: Path) -> bool:
    """Tell whether users outside of its group can read a directory, by its mode and by those of all above it."""
    readable = stat.S_IROTH | stat.S_IXOTH
    if directory.stat().st_mode & readable != readable:
        return False
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in directory.resolve().parents)


def _refuse_a_shared_one(directory: Path) -> None:
    """Refuse a folder such as /tmp or /var/lib: closing it would lock out everything else that lives there."""
    others = sorted(path.name for path in directory.iterdir() if not path.match(_OURS) and path.name not in _ALSO_FOUND)
    if not others:
        return
    raise ConfigError(
        f"{directory} is no folder of its own: every user may enter it, and it holds {', '.join(others[:_NAMED])}"
        f"{' and more' if len(others) > _NAMED else ''}.",
        hint="Set relay_dir to a folder that holds the relay log alone. If it has to be this one, close it with "
        "chmod o= first, or let everyone read the relay log with relay_access=all.",
    )


def _bring_along(directory: Path) -> None:
    """Change the files that were made under another `relay_access`, or by an earlier version."""
    for path in directory.glob(_OURS):
        with contextlib.suppress(OSError):  # gone by now, a link, or of another user
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
            hint="Make it, or name another one: its members read the relay log.",
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
