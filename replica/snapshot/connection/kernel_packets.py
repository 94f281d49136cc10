"""Find how far the rows reach that have arrived whole, by one look at the header of each packet."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u4

_HEADER = 4
_MAX_PIECE = 0xFFFFFF
_LENGTH = 0xFFFFFF
_ROW = 0


@kernel
def whole_rows(address: int, start: int, end: int) -> int:
    """Return the offset behind the last of the whole rows that stand between two offsets of a buffer.

    It stops before a packet that is not all there, that is no row of the binary protocol (those begin with 0), or that
    is continued by the next packet.
    """
    offset = start
    while offset + _HEADER < end:
        length = load_u4(address + offset) & _LENGTH
        behind = offset + _HEADER + length
        if behind > end or length in (0, _MAX_PIECE) or load_u1(address + offset + _HEADER) != _ROW:
            break
        offset = behind
    return offset
