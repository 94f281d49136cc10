"""The end of the relay log in a directory, read without touching it: beside a running replica as well as without
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.daemon.beginning import WORDS, last_known, lost
from replica.handshake.start.resume import Stored
from replica.relay_log.directory.head import read_head
from replica.relay_log.directory.identity import source_of
from replica.relay_log.files.file_head import read_file_head
from replica.relay_log.location import RelayHead, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import fingerprint_at

if TYPE_CHECKING:
    from pathlib import Path


class RelayEnd(NamedTuple):
    """The last group as published, and what a server is asked about it."""

    head: RelayHead
    stored: Stored


def relay_end(directory: Path, start: str) -> RelayEnd | None:
    """Return the end; None for a directory in which no group was written yet, or whose files are lost and `start` says
    where to go on.

    Raises:
        RelayError: the record or the relay file it names cannot be read, or the files are lost and `start` is a word.
        FileNotFoundError: the relay file it names is gone, others are there.
    """
    if directory.is_dir() and not relay_numbers(directory):
        known = last_known(directory)
        if known is not None:
            if start in WORDS:
                raise lost(directory, known)
            return None
    head = read_head(directory)
    if head is None:
        return None
    if not head.location.offset:
        return RelayEnd(head, Stored(head.position)) if head.position else None
    writer = read_file_head(relay_path(directory, head.location.file)).server_id
    uid, last = source_of(directory, head.location.file), fingerprint_at(RelayLog(directory), head.location)
    return RelayEnd(head, Stored(head.position, head.primary, writer, uid=uid, last=last))
