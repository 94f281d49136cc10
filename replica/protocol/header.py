"""The 19 bytes every event starts with, and the root of all event classes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.constants import HEADER_LENGTH, HeaderFlag, event_name

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer

HEADER: Final = struct.Struct(
    "<"
    "I"  # timestamp       seconds since 1970; 0 in artificial events
    "B"  # event_type
    "I"  # server_id
    "I"  # event_length    header, body and checksum
    "I"  # log_pos         where the next event starts, low 32 bits
    "H"  # flags
)


class EventHeader(NamedTuple):
    """The head of an event. `log_pos` is 0 in artificial events and, in 11.7+, in most events inside a transaction; it
    wraps at 4 GiB.
    """

    timestamp: int
    event_type: int
    server_id: int
    event_length: int
    log_pos: int
    flags: int

    @property
    def is_artificial(self) -> bool:
        """True for an event that was made for this connection: not in the primary's binlog, its log_pos is not a
        position.
        """
        return bool(self.flags & HeaderFlag.ARTIFICIAL)


@dataclass(frozen=True, slots=True)
class Event:
    """All that every event has."""

    header: EventHeader


def parse_header(data: Buffer, offset: int = 0) -> EventHeader:
    """Read the header at `offset`; refuse lengths that cannot hold it. The body need not be there yet."""
    if len(data) - offset < HEADER_LENGTH:
        raise TruncatedError(f"an event header has {HEADER_LENGTH} bytes, {len(data) - offset} are left", offset=offset)
    header = EventHeader._make(HEADER.unpack_from(data, offset))
    if header.event_length < HEADER_LENGTH:
        raise ProtocolError(
            f"{event_name(header.event_type)} event claims {header.event_length} bytes, less than its header",
            offset=offset,
        )
    return header
