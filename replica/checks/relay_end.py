"""Where the relay log in a directory ends, without touching it: beside a running replica as well as without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.handshake.resume import Stored
from replica.relay.file_head import read_file_head
from replica.relay.head import read_head
from replica.relay.location import RelayHead, relay_path

if TYPE_CHECKING:
    from pathlib import Path


class RelayEnd(NamedTuple):
    """The last group as published, and what a server is asked about it."""

    head: RelayHead
    stored: Stored


def relay_end(directory: Path) -> RelayEnd | None:
    """None for a directory in which no group was written yet.

    Raises:
        RelayError: the record or the relay file it names cannot be read.

    """
    head = read_head(directory)
    if head is None:
        return None
    if not head.location.offset:
        return RelayEnd(head, Stored(head.position)) if head.position else None
    writer = read_file_head(relay_path(directory, head.location.file)).server_id
    return RelayEnd(head, Stored(head.position, head.primary, writer))
