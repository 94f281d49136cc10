"""Look up the last transaction up to a relay log location, which becomes the transaction of the rows at this
location.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replica.protocol.constants import HEADER_LENGTH
from replica.protocol.events.decode import GtidEvent, decode, decode_description
from replica.protocol.header import parse_header
from replica.relay_log.files.file_head import read_file_head
from replica.relay_log.location import relay_path
from replica.snapshot.spool.events import LastTransaction

if TYPE_CHECKING:
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog


def transaction_at(log: RelayLog, head: RelayHead) -> LastTransaction:
    """Return the GTID and commit time of the last transaction up to a location; zeros if there is none."""
    first, end = log.oldest(), head.location
    if not end.offset or log.is_empty(first, end):
        return LastTransaction()
    begin = log.last_group(end)
    path = relay_path(log.directory, begin.file)
    description = decode_description(read_file_head(path).format)
    with path.open("rb") as file:
        length = parse_header(memoryview(os.pread(file.fileno(), HEADER_LENGTH, begin.offset))).event_length
        event = decode(memoryview(os.pread(file.fileno(), length, begin.offset)), description)
    return LastTransaction(event.gtid, head.timestamp) if isinstance(event, GtidEvent) else LastTransaction()
