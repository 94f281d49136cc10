"""The variable-length integers and texts of MySQL's serialization library, as in GTID_TAGGED_LOG events.

The number of one bits at the low end of the first byte says how many bytes follow (0 to 8); the value's bits stand
above them, little endian. Signed numbers keep their sign in the lowest bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replica.protocol.wire import Cursor

_MAX_MORE: Final = 8


def read_unsigned(cursor: Cursor) -> int:
    first = cursor.peek_rest()[:1]
    more = _ones(first[0]) if first else 0
    word = int.from_bytes(cursor.take(more + 1), "little")
    # With eight bytes to follow, the first has no bits of the value left, nor a zero to end the ones.
    return word >> 8 if more == _MAX_MORE else word >> (more + 1)


def read_signed(cursor: Cursor) -> int:
    value = read_unsigned(cursor)
    return ~(value >> 1) if value & 1 else value >> 1


def read_text(cursor: Cursor) -> str:
    """Read a size and UTF-8 text."""
    return cursor.text(read_unsigned(cursor))


def _ones(byte: int) -> int:
    """Count the one bits at the low end."""
    return (~byte & (byte + 1)).bit_length() - 1
