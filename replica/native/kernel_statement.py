"""Kernels that recognise the text of a QUERY: borders of transactions, and DDL.

A QUERY lies between `at`, its header, and `end`, the start of its checksum. The server writes the borders itself,
always with the same spelling. A truncated event is never a border.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.kernel_group import HEADER, QUERY_FIELDS, text_at
from replica.native.memory import load_u1, load_u2, load_u4, load_u8

_COMM = int.from_bytes(b"COMM", "little")
_IT = int.from_bytes(b"IT", "little")
_BEGI = int.from_bytes(b"BEGI", "little")
_N = ord("N")
_XA = int.from_bytes(b"XA ", "little")
_ROLLBACK = int.from_bytes(b"ROLLBACK", "little")
_SAVEPOINT = int.from_bytes(b"SAVEPOIN", "little")
_CREA = int.from_bytes(b"crea", "little")
_DROP = int.from_bytes(b"drop", "little")
_SMALL = 0x20202020
_SMALL_8 = 0x2020202020202020
# Results of `savepoint_role`.
NO_SAVEPOINT = 0
SETS_SAVEPOINT = 1
ROLLS_BACK_TO = 2
_LONGEST_BORDER = 8  # bytes that identify a border; a name follows them


@helper
def is_border(at: int, end: int) -> bool:
    """Return True if a QUERY begins or ends a transaction or a part of one."""
    if end - at < HEADER + QUERY_FIELDS:
        return False
    text = text_at(at)
    left = end - text
    if left >= _LONGEST_BORDER:
        head = load_u8(text)
        return head in (_ROLLBACK, _SAVEPOINT) or head & 0xFFFFFF == _XA
    if left == 6:
        return load_u4(text) == _COMM and load_u2(text + 4) == _IT
    return left == 5 and load_u4(text) == _BEGI and load_u1(text + 4) == _N


@helper
def savepoint_role(at: int, end: int) -> int:
    """Return the savepoint role of a QUERY inside a transaction, by its first letters. It must have its fixed fields.

    The result is NO_SAVEPOINT, SETS_SAVEPOINT or ROLLS_BACK_TO.
    """
    text = text_at(at)
    if end - text <= _LONGEST_BORDER:
        return NO_SAVEPOINT
    head = load_u8(text) | _SMALL_8
    if head == _SAVEPOINT | _SMALL_8:
        return SETS_SAVEPOINT
    return ROLLS_BACK_TO if head == _ROLLBACK | _SMALL_8 else NO_SAVEPOINT


@helper
def defines(at: int, end: int) -> bool:
    """Return True if the text of a QUERY begins with CREATE or DROP."""
    if end - at < HEADER + QUERY_FIELDS:
        return False
    text = text_at(at)
    return end - text >= 4 and load_u4(text) | _SMALL in (_CREA, _DROP)
