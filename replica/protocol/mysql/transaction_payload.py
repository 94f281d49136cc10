"""TRANSACTION_PAYLOAD: all events of a MySQL transaction after its GTID event, compressed together.

The body has fields of type, size and value, up to a type 0, and then the payload: whole events without checksums. The
log_pos of these events is meaningless. In: the body. Out: the bytes of the events, which never take more memory than
the size that the event claims. A claim beyond the largest event, or beyond the maximum ratio of zstd, is refused before
decompression.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import zstandard

from replica.errors import ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import MAX_EVENT_BYTES
from replica.protocol.header import Event

if TYPE_CHECKING:
    from replica.protocol.header import EventHeader, FormatDescriptionEvent
    from replica.protocol.wire import Cursor

MAX_RATIO: Final = 1 << 15
"""Maximum ratio of zstd: a block of at least four bytes yields at most 128 KiB."""
MAX_WINDOW: Final = 1 << 27
"""Maximum history in bytes that a decompressor keeps. MySQL's levels 1 to 22 stay within it."""
_CHUNK: Final = 1 << 20


class _Field(IntEnum):
    END = 0
    SIZE = 1
    COMPRESSION = 2
    UNCOMPRESSED_SIZE = 3


class Compression(IntEnum):
    """Compression algorithms (transaction::compression::type)."""

    ZSTD = 0
    NONE = 255


@dataclass(frozen=True, slots=True)
class TransactionPayloadEvent(Event):
    compression: int
    """A `Compression`, or the code of an algorithm that this program does not know."""
    uncompressed_size: int
    payload: memoryview

    def events(self, *, limit: int = MAX_EVENT_BYTES) -> bytes | memoryview:
        """Return the decompressed events without gaps. `limit` is the maximum size in bytes that the caller accepts.

        Raises:
            ProtocolError: the payload is damaged or larger than `limit`.
        """
        size = self.uncompressed_size
        if size > limit:
            raise ProtocolError(f"a transaction of {size} bytes in a payload; at most {limit} are allowed", offset=0)
        if self.compression == Compression.NONE:
            if len(self.payload) != size:
                raise ProtocolError(f"a payload of {len(self.payload)} bytes that claims {size}", offset=0)
            return self.payload
        if self.compression != Compression.ZSTD:
            raise UnsupportedEventError(
                f"a transaction is compressed with the unknown algorithm {self.compression}", offset=0
            )
        if size > MAX_RATIO * len(self.payload):
            raise ProtocolError(f"a payload of {len(self.payload)} bytes claims to hold {size}", offset=0)
        return _decompress(self.payload, size)


def _decompress(payload: memoryview, size: int) -> bytes:
    out = bytearray()
    try:
        with zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(payload) as reader:
            while piece := reader.read(min(_CHUNK, size + 1 - len(out))):
                out += piece
    except zstandard.ZstdError as error:
        raise ProtocolError(f"a transaction payload cannot be decompressed: {error}", offset=0) from None
    if len(out) != size:
        raise ProtocolError(f"a transaction payload does not decompress to the {size} bytes it claims", offset=0)
    return bytes(out)


def decode_transaction_payload(
    header: EventHeader, body: Cursor, _description: FormatDescriptionEvent
) -> TransactionPayloadEvent:
    return read_transaction_payload(header, body)


def read_transaction_payload(header: EventHeader, body: Cursor) -> TransactionPayloadEvent:
    found: dict[int, int] = {}
    start = body.offset
    while kind := body.lenenc():
        with body.restrict(body.lenenc()):
            if kind in (_Field.SIZE, _Field.COMPRESSION, _Field.UNCOMPRESSED_SIZE):
                found[kind] = body.lenenc()
            body.rest()
    compression = found.get(_Field.COMPRESSION, Compression.NONE)
    payload = body.rest()
    claimed = found.get(_Field.SIZE, len(payload))
    if claimed > len(payload):
        raise TruncatedError(f"a payload of {claimed} bytes, {len(payload)} are left", offset=start)
    payload = payload[:claimed]
    return TransactionPayloadEvent(header, compression, found.get(_Field.UNCOMPRESSED_SIZE, len(payload)), payload)
