"""Start of a relay log without a group: its earlier start, or the option `start`, but never beyond lost files.

In: a relay directory in which recovery found no group, and the option `start`. Out: the position, or None if the option
decides. A directory without relay files that has traces of earlier ones is refused, because a start at `latest` would
skip all transactions in between. A user who wants that sets `start` to a GTID position, or empties the directory.
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
"""Values of `start` other than a position. They say nothing about the position of lost files."""


class LastKnown(NamedTuple):
    """The last known position, '' if it is unknown, and the file that records it."""

    position: str
    told_by: str


def beginning(directory: Path, start: str) -> GtidPosition | None:
    """Return where to begin, see the module docstring.

    The caller holds the directory's lock and has published nothing.

    Raises:
        RelayError: there were relay files, and they were removed.
    """
    if start not in WORDS:
        return None
    head = None
    with contextlib.suppress(RelayError):  # damaged, or of another version: other files are read
        head = read_head(directory)
    if head is not None and not head.location.offset and head.primary.position == BEGUN:
        return head.position  # it began there, and nothing was received since
    known = last_known(directory)
    if known is None:
        return None
    raise lost(directory, known)


def last_known(directory: Path) -> LastKnown | None:
    """Return the last known position of a directory without relay files; None if there is no trace of a log."""
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
        what = f"{known.told_by} shows that the log reached {known.position}"
        remedy = f"To continue after it, start once with --start {known.position}"
    else:
        what = f"{known.told_by} shows that a replica ran here, but nothing shows how far it got"
        remedy = "To continue, start once with --start and the last GTID position that your readers have"
    return RelayError(
        f"The relay files of {directory} are missing: {what}.",
        hint=f"Put the files back if they exist. {remedy}: the primary then sends what it still has, and "
        "refuses what it purged. To begin again at the position of the option start, and skip all changes in between, "
        f"remove the whole folder: rm -r {directory}.",
    )
