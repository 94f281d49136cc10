"""PARTIAL_ROW_DATA (MariaDB 12.3+): fragments of a rows event that is too large for one packet.

Each fragment has the number of fragments and its own number; the first one also has the total size. The joined chunks
are the rows event with its header. Its table map is before the first fragment. The rows event may be compressed, and
may end with its own checksum, which its length then includes.

Implemented from the documented layout and not tested with a server that writes these events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.checksum import event_crc32
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, MAX_EVENT_BYTES
from replica.protocol.header import Event, parse_header
from replica.protocol.rows.rows_event import ROWS_EVENTS

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor

HAS_ORIGINAL_SIZE: Final = 1
"""FL_ORIG_EVENT_SIZE"""


@dataclass(frozen=True, slots=True)
class PartialRowDataEvent(Event):
    total: int
    """Number of fragments of this rows event."""
    number: int
    """Number of this fragment, from 1."""
    size: int | None
    """Size of the rows event in bytes. Only the first fragment has it."""
    chunk: memoryview


def decode_partial_row_data(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> PartialRowDataEvent:
    return read_partial_row_data(header, body)


def read_partial_row_data(header: EventHeader, body: Cursor) -> PartialRowDataEvent:
    at = body.offset
    total, number, flags = body.u32(), body.u32(), body.u8()
    if not 0 < number <= total:
        raise ProtocolError(f"fragment {number} of {total} of a rows event", offset=at)
    size = body.u64() if flags & HAS_ORIGINAL_SIZE else None
    return PartialRowDataEvent(header, total, number, size, body.rest())


class Assembler:
    """Assembler of fragments. Feed it the fragments in order; `add` returns the rows event with the last fragment."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._total = 0
        self._size = 0
        self._next = 0
        self._event = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether fragments are missing."""
        return self._next > 0

    def add(self, fragment: PartialRowDataEvent) -> bytes | None:
        """Add a fragment; return the whole rows event after the last one, else None.

        The returned event has its header and no checksum.
        """
        if fragment.number == 1 and not self.is_open:
            if fragment.size is None:
                raise ProtocolError("the first fragment of a rows event does not contain its size")
            if not HEADER_LENGTH <= fragment.size <= self._limit:
                raise ProtocolError(
                    f"a rows event of {fragment.size} bytes in fragments; at most {self._limit} are allowed"
                )
            self._total, self._size, self._next, self._event = fragment.total, fragment.size, 1, bytearray()
        if (fragment.number, fragment.total) != (self._next, self._total):
            raise ProtocolError(
                f"fragment {fragment.number} of {fragment.total} of a rows event, "
                f"expected {max(self._next, 1)} of {self._total or fragment.total}",
                hint="Fragments are missing: start before the first of them.",
            )
        if len(self._event) + len(fragment.chunk) > self._size:
            raise ProtocolError(f"the fragments of a rows event have more than the {self._size} bytes it claims")
        self._event += fragment.chunk
        if self._next < self._total:
            self._next += 1
            return None
        self._next = 0
        if len(self._event) != self._size:
            raise ProtocolError(
                f"the fragments of a rows event have {len(self._event)} bytes, {self._size} are claimed"
            )
        return _without_checksum(bytes(self._event))


def _without_checksum(event: bytes) -> bytes:
    """Return the rows event without its checksum, with the length in its header adjusted."""
    header = parse_header(event)
    length = len(event)
    if header.event_type not in ROWS_EVENTS or header.event_length not in (length, length + CHECKSUM_LENGTH):
        raise ProtocolError(
            "the fragments of a rows event do not form a rows event",
            hint="Without the event's own header, an INSERT and a DELETE look the same.",
        )
    content = event
    if header.event_length == length and length >= HEADER_LENGTH + CHECKSUM_LENGTH:
        stored = int.from_bytes(event[-CHECKSUM_LENGTH:], "little")
        if stored == event_crc32(memoryview(event)[:-CHECKSUM_LENGTH]):
            content = event[:-CHECKSUM_LENGTH]
    return content[:9] + len(content).to_bytes(4, "little") + content[13:]
