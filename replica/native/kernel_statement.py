"""The text of a QUERY, as far as kernels look at texts: the borders of transactions, and definitions.

A QUERY stands between `at`, its header, and `end`, where its checksum begins. The server itself writes the borders, and
writes them always alike; an event that is cut short is none.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.kernel_group import QUERY_FIELDS, text_at
from replica.native.kernel_header import HEADER
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
# What `savepoint_role` returns.
NO_SAVEPOINT = 0
SETS_SAVEPOINT = 1
ROLLS_BACK_TO = 2
_LONGEST_BORDER = 8  # bytes that tell one; the text after them is a name


@helper
def is_border(at: int, end: int) -> bool:
    """Tell whether a QUERY begins or ends a transaction or a part of one."""
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
    """Return what a QUERY inside a transaction says of savepoints, by its first letters; it must have its fixed
    fields.
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
    """Tell whether the text of a QUERY begins with CREATE or DROP."""
    if end - at < HEADER + QUERY_FIELDS:
        return False
    text = text_at(at)
    return end - text >= 4 and load_u4(text) | _SMALL in (_CREA, _DROP)
