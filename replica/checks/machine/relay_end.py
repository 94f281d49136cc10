"""End of the relay log in a directory, read without changing anything, with or without a running replica."""

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
    """The last published group, and the stored position that a server is checked against."""

    head: RelayHead
    stored: Stored


def relay_end(directory: Path, start: str) -> RelayEnd | None:
    """Return the end of the relay log.

    None means that no group was written yet, or that the files are lost and `start` is a position to continue from.

    Raises:
        RelayError: the record or its relay file cannot be read, or the files are lost and `start` is a word.
        FileNotFoundError: the relay file of the record was removed, and others exist.
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
