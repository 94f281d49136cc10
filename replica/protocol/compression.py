"""Decompression of log_bin_compress blocks and of values of COMPRESSED columns.

In: a block, or the value of a column. A block is one byte (0x80 | algorithm << 4 | number of length bytes), the
inflated size (big endian) and a zlib stream. QUERY_COMPRESSED and compressed rows events hold a block. The value of a
column is empty, or a zero byte and the plain value, or a block; bit 3 of the first byte of that block marks a raw
deflate stream. Out: exactly as many bytes as the block claims.

Refused before memory is allocated: an unknown algorithm, a size above the limit, and a size that the deflate stream
cannot reach. Refused afterwards: a stream of another size, or one that cannot be inflated. Bytes after the end of a
stream are ignored, as the server does.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import deflate

from replica.errors import ProtocolError
from replica.protocol.constants import MAX_EVENT_BYTES

if TYPE_CHECKING:
    from replica.protocol.wire import Buffer

_KIND = 0xF0  # in the first byte: the mark of a block, and the algorithm
_ZLIB = 0x80  # the only algorithm in use
_RAW = 0x08
_LENGTH_BYTES = 0x07

MAX_RATIO: Final = 1032
"""Maximum ratio of a deflate stream: a match of 258 bytes takes two bits."""
SMALL: Final = 768
"""Inflated size in bytes from which libdeflate is used instead of zlib.

libdeflate takes a microsecond longer to begin and then inflates nearly twice as fast (`scripts/bench inflate`).
"""


def inflate(block: Buffer, *, limit: int = MAX_EVENT_BYTES) -> bytes | bytearray:
    """Inflate a log_bin_compress block.

    `limit` is the maximum size in bytes that a damaged block can make us allocate.

    Raises:
        ProtocolError: the block is refused, see the module docstring.
    """
    first = block[0] if block else 0
    if first & _KIND != _ZLIB:
        raise ProtocolError(f"0x{first:02x} does not start a block compressed with zlib", offset=0)
    data = _inflate(block, limit, raw=False)
    if not data:
        raise ProtocolError("a compressed block claims to be empty", offset=1)
    return data


def inflate_column(value: Buffer, *, limit: int = MAX_EVENT_BYTES) -> Buffer:
    """Inflate the value of a COMPRESSED column (Field_longstr::uncompress).

    Args:
        value: the bytes of the column.
        limit: maximum length in bytes that the column's type allows.

    Raises:
        ProtocolError: the value is refused, see the module docstring.
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
        raise ProtocolError(f"a compressed block claims {size} bytes; at most {limit} are possible", offset=1)
    return inflate_stream(memoryview(block)[start:], size, raw=raw, offset=start)


def inflate_stream(stream: Buffer, size: int, *, raw: bool = False, offset: int = 0) -> bytes | bytearray:
    """Inflate a zlib stream (with `raw`: a deflate stream) to exactly `size` bytes.

    `offset` is the byte offset of the stream, which errors report.
    """
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
            # After `size` bytes zlib may not have reached the end of the stream. One byte more finds the end, or
            # surplus data.
            data = decoder.decompress(stream, size + 1)
            whole = decoder.eof and len(data) == size
    except (zlib.error, deflate.DeflateError) as error:
        raise ProtocolError(f"a compressed block cannot be inflated to {size} bytes: {error}", offset=offset) from None
    if not whole:
        raise ProtocolError(f"a compressed block does not inflate to the {size} bytes it claims", offset=offset)
    return data
