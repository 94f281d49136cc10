"""The last event of a group, read back from the relay log: what a primary must still have at the same place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replica.protocol.constants import HEADER_LENGTH
from replica.protocol.header import parse_header
from replica.relay.location import RelayLocation, relay_path
from replica.relay.log import RelayLog

if TYPE_CHECKING:
    from pathlib import Path


def last_event(directory: Path, end: RelayLocation) -> bytes | None:
    """The last event of the group that ends at `end`, a group end; None before the first group."""
    if not end.offset:
        return None
    group = RelayLog(directory).cut(RelayLocation(end.file, 0), end._replace(offset=end.offset - 1), end.offset)
    start = offset = group.location.offset
    with relay_path(directory, end.file).open("rb") as file:
        while offset < end.offset:
            start = offset
            offset += parse_header(memoryview(os.pread(file.fileno(), HEADER_LENGTH, start))).event_length
        return os.pread(file.fileno(), end.offset - start, start)
