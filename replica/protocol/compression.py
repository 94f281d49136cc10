"""Inflates the compressed blocks of log_bin_compress: SQL of QUERY_COMPRESSED, images of compressed rows events.

In: a block = one byte (0x80 | algorithm << 4 | length bytes), the inflated size (big endian), a zlib stream. Out:
exactly that many bytes. Refuses an unknown algorithm, a size above the largest event, and a stream of another size.
"""

from __future__ import annotations

import zlib

from replica.errors import ProtocolError
from replica.protocol.constants import MAX_EVENT_BYTES
from replica.protocol.wire import Buffer, Cursor

_VALID_MASK, _VALID = 0xE0, 0x80
_ZLIB = 0


def inflate(block: Buffer, *, limit: int = MAX_EVENT_BYTES) -> bytes:
    """The inflated bytes; `limit` bounds what a few damaged bytes can make us allocate."""
    cursor = Cursor(block)
    first = cursor.u8()
    if first & _VALID_MASK != _VALID or (first & 0x70) >> 4 != _ZLIB:
        raise ProtocolError(f"0x{first:02x} does not start a block compressed with zlib", offset=0)
    size = int.from_bytes(cursor.take(first & 0x07), "big")
    if not 0 < size <= limit:
        raise ProtocolError(f"a compressed block claims {size} bytes; 1 to {limit} are possible", offset=1)
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(cursor.rest(), size)
        # Having given `size` bytes it may not have read the stream's end: one byte more finds it, or finds more data.
        more = b"" if stream.eof else stream.decompress(stream.unconsumed_tail, 1)
    except zlib.error as error:
        raise ProtocolError(f"a compressed block cannot be inflated: {error}", offset=cursor.offset) from None
    if len(data) != size or more or not stream.eof:
        raise ProtocolError(f"a compressed block does not inflate to the {size} bytes it claims", offset=1)
    return data
