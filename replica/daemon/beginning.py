"""The beginning of a relay log without a group: where it began already, or where `start` says, but never past lost
files.

In: a relay directory in which recovery found no group, and the option `start`. Out: the position, None where the option
decides. A directory that holds no relay files, but tells that there were some, is refused: beginning at `latest` would
skip all that came since. A user who means that says so, by a GTID position as `start` or by an empty directory.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from replica.daemon.status.file import STATUS_NAME, read_status
from replica.errors import RelayError
from replica.relay_log.directory.head import BEGUN, HEAD_NAME, read_head
from replica.relay_log.directory.identity import IDENTITY_NAME
from replica.relay_log.directory.readers import READERS_NAME, registered_readers

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition

WORDS = ("latest", "earliest")
"""What `start` says besides a position; neither knows what was lost."""


class LastKnown(NamedTuple):
    """The last position that is still told, empty for none, and the file that tells it."""

    position: str
    told_by: str


def beginning(directory: Path, start: str) -> GtidPosition | None:
    """Choose where to begin, as the head of this file says; the caller holds the directory's lock and has not published
    anything.

    Raises:
        RelayError: there were relay files, and they are gone.
    """
    if start not in WORDS:
        return None
    head = None
    with contextlib.suppress(RelayError):  # damaged, or of another version: then the others tell
        head = read_head(directory)
    if head is not None and not head.location.offset and head.primary.position == BEGUN:
        return head.position  # it began there, and nothing has come since
    known = last_known(directory)
    if known is None:
        return None
    raise lost(directory, known)


def last_known(directory: Path) -> LastKnown | None:
    """Return what a directory without relay files tells of where they ended; None where there were none."""
    with contextlib.suppress(RelayError):
        head = read_head(directory)
        if head is not None:
            return LastKnown(str(head.position), HEAD_NAME) if head.location.offset else None
    with contextlib.suppress(RelayError):
        status = read_status(directory)
        if status is not None:
            return LastKnown(status.position.gtid, STATUS_NAME)
    with contextlib.suppress(RelayError):
        readers = sorted(registered_readers(directory), key=lambda reader: reader.location)
        if readers:
            return LastKnown(readers[-1].position, f"{READERS_NAME} ({readers[-1].name})")
    traces = (name for name in (IDENTITY_NAME, READERS_NAME) if (directory / name).exists())
    return next((LastKnown("", name) for name in traces), None)


def lost(directory: Path, known: LastKnown) -> RelayError:
    if known.position:
        what = f"{known.told_by} tells that the log had got to {known.position}"
        remedy = f"To go on behind that, start once with --start {known.position}"
    else:
        what = f"{known.told_by} tells that a replica has run here, and nothing tells how far it had got"
        remedy = "To go on, start once with --start and the last GTID position that your readers have"
    return RelayError(
        f"The relay files of {directory} are gone: {what}.",
        hint=f"Put the files back if they exist. {remedy}: what the primary still has is received from there, and "
        "refused if it was purged. To begin again where start says, passing over what lies between, remove the whole "
        f"folder: rm -r {directory}.",
    )
