"""Kernel that finds the end of the complete row packets in a buffer, with one look at each packet's header."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u4

_HEADER = 4
_MAX_PIECE = 0xFFFFFF
_LENGTH = 0xFFFFFF
_ROW = 0


@kernel
def whole_rows(address: int, start: int, end: int) -> int:
    """Return the offset after the last complete row packet between two offsets of a buffer.

    The scan stops before an incomplete packet, before a packet that the next packet continues, and before a packet that
    is no row. Rows of the binary protocol start with 0.
    """
    offset = start
    while offset + _HEADER < end:
        length = load_u4(address + offset) & _LENGTH
        behind = offset + _HEADER + length
        if behind > end or length in (0, _MAX_PIECE) or load_u1(address + offset + _HEADER) != _ROW:
            break
        offset = behind
    return offset
