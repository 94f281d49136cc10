"""Expansion of a range: events that contain other events are replaced by their content.

TRANSACTION_PAYLOAD (MySQL) contains a compressed transaction, PARTIAL_ROW_DATA (MariaDB 12.3) a fragment of a rows
event. Their content has no checksums, so `expand` removes all checksums: it reduces each event's length, and the
FORMAT_DESCRIPTION event announces no checksum. Other bytes are copied unchanged. `Expansion` maps offsets back to the
range, for errors and positions. Errors: payloads and fragments that protocol/ refuses, fragments whose rest is missing,
and ranges that would exceed MAX_EXPANDED_BYTES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.constants import (
    BINLOG_MAGIC,
    CHECKSUM_LENGTH,
    HEADER_LENGTH,
    MAX_EVENT_BYTES,
    ChecksumAlgorithm,
    EventType,
)
from replica.protocol.header import EventHeader, parse_header
from replica.protocol.mysql.events import read_transaction_payload
from replica.protocol.rows.rows_event import Assembler, read_partial_row_data
from replica.protocol.wire import Cursor

if TYPE_CHECKING:
    import numpy.typing as npt

# One transaction may be as large as the largest event. A range of several transactions must be smaller.
MAX_EXPANDED_BYTES: Final = MAX_EVENT_BYTES

_FDE_TAIL: Final = CHECKSUM_LENGTH + 1  # the algorithm byte, and the four bytes that always follow
_FDE_LEAST: Final = HEADER_LENGTH + 57 + _FDE_TAIL


class Expansion(NamedTuple):
    """An expanded range.

    Attributes:
        data: The bytes, without checksums.
        places: int64 of shape (n, 2): per outer event, and for the end, the offset in `data` and the offset in the
            range.
    """

    data: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]

    def origin(self, offset: int) -> int:
        """Return the range offset of the outer event that contains the offset `offset` of `data`."""
        return int(self.origins(np.array([offset]))[0])

    def origins(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the range offsets of several offsets; the end of `data` maps to the end of the range."""
        places = np.searchsorted(self.places[:, 0], offsets, side="right") - 1
        return self.places[np.maximum(places, 0), 1]


def expand(data: memoryview, *, checksum: bool, limit: int = MAX_EXPANDED_BYTES) -> Expansion:
    """Replace the events that contain other events. Errors have the offset of the outer event.

    Args:
        data: The range.
        checksum: True if events carry a CRC32, until a FORMAT_DESCRIPTION event of the range changes that.
        limit: Maximal size of the result in bytes.
    """
    out = bytearray()
    places: list[tuple[int, int]] = []
    trailer = CHECKSUM_LENGTH if checksum else 0
    offset = len(BINLOG_MAGIC) if bytes(data[: len(BINLOG_MAGIC)]) == BINLOG_MAGIC else 0
    fragments = Assembler(limit)
    while offset < len(data):
        header = parse_header(data, offset)
        end = offset + header.event_length
        if end > len(data) or header.event_length < HEADER_LENGTH + trailer:
            raise TruncatedError("the bytes end inside an event", offset=offset)
        places.append((len(out), offset))
        if header.event_type == EventType.FORMAT_DESCRIPTION:
            trailer = _description(data[offset:end], out, offset)
        else:
            try:
                _event(header, data[offset : end - trailer], out, fragments, limit)
            except ProtocolError as error:
                message = error.placeless
                raise type(error)(message, offset=offset, hint=error.hint) from None
        if len(out) > limit:
            raise _too_large(offset, limit)
        offset = end
    if fragments.is_open:
        raise TruncatedError("the last fragments of a rows event are missing", offset=offset)
    places.append((len(out), offset))
    return Expansion(np.frombuffer(out, np.uint8), np.array(places, np.int64).reshape(-1, 2))


def _description(event: memoryview, out: bytearray, offset: int) -> int:
    """Write a FORMAT_DESCRIPTION event that announces no checksums.

    Return the length of the checksum that the original event announced, in bytes.
    """
    if len(event) < _FDE_LEAST or event[-_FDE_TAIL] > ChecksumAlgorithm.CRC32:
        raise ProtocolError("malformed FORMAT_DESCRIPTION event", offset=offset)
    out += event
    out[-_FDE_TAIL] = ChecksumAlgorithm.NONE
    return CHECKSUM_LENGTH if event[-_FDE_TAIL] == ChecksumAlgorithm.CRC32 else 0


def _event(header: EventHeader, content: memoryview, out: bytearray, fragments: Assembler, limit: int) -> None:
    """Write one event without its checksum, or the events that it contains."""
    if header.event_type == EventType.TRANSACTION_PAYLOAD:
        payload = read_transaction_payload(header, Cursor(content, HEADER_LENGTH))
        room = limit - len(out)
        if payload.uncompressed_size > room:
            raise _too_large(0, limit)
        out += payload.events(limit=room)
    elif header.event_type == EventType.PARTIAL_ROW_DATA:
        event = fragments.add(read_partial_row_data(header, Cursor(content, HEADER_LENGTH)))
        if event is not None:
            out += event
    else:
        start = len(out)
        out += content
        out[start + 9 : start + 13] = len(content).to_bytes(4, "little")


def _too_large(offset: int, limit: int) -> ProtocolError:
    return ProtocolError(
        f"the transactions of this range have more than {limit} bytes when they are decompressed",
        offset=offset,
        hint="Read smaller ranges at a time; a single transaction of this size cannot be read.",
    )
