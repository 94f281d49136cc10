"""Inflate what MariaDB compresses: blocks of log_bin_compress, and values of COMPRESSED columns.

In: a block (SQL of QUERY_COMPRESSED, images of compressed rows events) = one byte (0x80 | algorithm << 4 | length
bytes), the inflated size (big endian), a zlib stream; or a column's value = nothing for an empty one, a zero byte and
the plain value, or a block whose first byte has bit 3 set when the stream is raw deflate. Out: exactly as many bytes as
are claimed.

Refused, before any memory is taken: an unknown algorithm, a size above the limit, and one that no deflate stream of
that length can reach. Refused afterwards: a stream of another size, or that cannot be inflated. Bytes behind a stream's
end are ignored, as the server does.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import deflate

from replica.errors import ProtocolError
from replica.protocol.constants import MAX_EVENT_BYTES

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer

_KIND = 0xF0  # of the first byte: whether it is one, and the algorithm
_ZLIB = 0x80  # the only algorithm there is
_RAW = 0x08
_LENGTH_BYTES = 0x07

MAX_RATIO: Final = 1032
"""A deflate stream's limit: a match of 258 bytes in two bits."""
SMALL: Final = 768
"""Inflated sizes below this are zlib's, from it on libdeflate's, which takes a microsecond longer to begin and then
inflates nearly twice as fast (`scripts/bench inflate`)."""


def inflate(block: Buffer, *, limit: int = MAX_EVENT_BYTES) -> bytes | bytearray:
    """Inflate a log_bin_compress block; `limit` bounds what a few damaged bytes can make us allocate."""
    first = block[0] if block else 0
    if first & _KIND != _ZLIB:
        raise ProtocolError(f"0x{first:02x} does not start a block compressed with zlib", offset=0)
    data = _inflate(block, limit, raw=False)
    if not data:
        raise ProtocolError("a compressed block claims to be empty", offset=1)
    return data


def inflate_column(value: Buffer, *, limit: int = MAX_EVENT_BYTES) -> Buffer:
    """Inflate the value of a COMPRESSED column (Field_longstr::uncompress); `limit`: the longest that its type
    allows.
    """
    if not value:
        return b""
    first = value[0]
    if first & _KIND == 0:
        return memoryview(value)[1:]
    if first & _KIND != _ZLIB:
        raise ProtocolError(f"0x{first:02x} does not start a compressed value", offset=0)
    return _inflate(value, limit, raw=bool(first & _RAW))


def _inflate(block: Buffer, limit: int, *, raw: bool) -> bytes | bytearray:
    start = 1 + (block[0] & _LENGTH_BYTES)
    size = int.from_bytes(block[1:start], "big")
    if size > limit:
        raise ProtocolError(f"a compressed block claims {size} bytes; {limit} are possible", offset=1)
    return inflate_stream(memoryview(block)[start:], size, raw=raw, offset=start)


def inflate_stream(stream: Buffer, size: int, *, raw: bool = False, offset: int = 0) -> bytes | bytearray:
    """Inflate a zlib stream (`raw`: a deflate stream) to exactly `size` bytes; errors name `offset` as its place."""
    if size > MAX_RATIO * len(stream):
        raise ProtocolError(
            f"a compressed stream of {len(stream)} bytes claims {size} bytes, which no deflate stream can reach",
            offset=offset,
        )
    data: bytes | bytearray
    try:
        if size >= SMALL:
            data = deflate.deflate_decompress(stream, size) if raw else deflate.zlib_decompress(stream, size)
            whole = len(data) == size
        else:
            decoder = zlib.decompressobj(-zlib.MAX_WBITS if raw else zlib.MAX_WBITS)
            # Having given `size` bytes, zlib may not have read the stream's end: one byte more finds it, or more data.
            data = decoder.decompress(stream, size + 1)
            whole = decoder.eof and len(data) == size
    except (zlib.error, deflate.DeflateError) as error:
        raise ProtocolError(f"a compressed block cannot be inflated to {size} bytes: {error}", offset=offset) from None
    if not whole:
        raise ProtocolError(f"a compressed block does not inflate to the {size} bytes it claims", offset=offset)
    return data
