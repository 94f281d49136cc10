# ruff: noqa: PLR0911  (one return a kind of byte)
"""Kernel helpers that write quoted text with the escapes of each notation.

They copy eight bytes at a time while none of them needs an escape.
"""

from __future__ import annotations

from replica.dump.rows.kernel_digits import put_hex
from replica.native.compile import helper
from replica.native.memory import load_u1, load_u8, store_u1, store_u4, store_u8

JSON = 0
SQL = 1
PLAIN = 2

_CONTROL = int.from_bytes(b"u00", "little")
_LOW = 0x0101010101010101
_HIGH = -0x7F7F7F7F7F7F7F80  # 0x80 in each byte
_BELOW_SPACE = 0x2020202020202020
_QUOTE = 0x2222222222222222
_APOSTROPHE = 0x2727272727272727
_BACKSLASH = 0x5C5C5C5C5C5C5C5C


@helper
def zero_byte(word: int) -> int:
    """Return a value other than 0 if one of the eight bytes is 0."""
    return (word - _LOW) & ~word & _HIGH


@helper
def needs_escape(word: int, notation: int) -> int:
    """Return a value other than 0 if one of the eight bytes needs an escape in quoted text."""
    found = (word - _BELOW_SPACE) & ~word & _HIGH | zero_byte(word ^ _BACKSLASH)
    if notation == JSON:
        return found | zero_byte(word ^ _QUOTE)
    # 0x7F would command a terminal too. It is rare, so it may take the slow path.
    return found | zero_byte(word ^ _APOSTROPHE) | zero_byte(word ^ 0x7F7F7F7F7F7F7F7F)


@helper
def short_escape(byte: int, notation: int) -> int:
    """Return the letter after the backslash, 0 if the byte needs no escape, or -1 if it is written in hex."""
    if byte == 92:
        return 92
    if byte == 10:
        return 110
    if byte == 13:
        return 114
    if notation == JSON:
        if byte == 34:
            return 34
        if byte == 9:
            return 116
        return -1 if byte < 32 else 0
    if byte == 39:
        return 39
    if byte == 0:
        return 48
    if byte == 26:
        return 90
    if notation == SQL:
        return 0
    if byte == 9:
        return 116
    return -1 if byte < 32 or byte == 127 else 0


@helper
def escaped_size(p: int, size: int, notation: int) -> int:
    total = size
    i = 0
    while i < size:
        if size - i >= 8 and needs_escape(load_u8(p + i), notation) == 0:
            i += 8
            continue
        escape = short_escape(load_u1(p + i), notation)
        if escape > 0:
            total += 1
        elif escape < 0:
            total += 5 if notation == JSON else 3
        i += 1
    return total


@helper
def put_escaped(q: int, p: int, size: int, notation: int) -> int:
    i = 0
    while i < size:
        if size - i >= 8:
            word = load_u8(p + i)
            if needs_escape(word, notation) == 0:
                store_u8(q, word)
                q += 8
                i += 8
                continue
        byte = load_u1(p + i)
        i += 1
        escape = short_escape(byte, notation)
        if escape == 0:
            store_u1(q, byte)
            q += 1
            continue
        store_u1(q, 92)
        if escape > 0:
            store_u1(q + 1, escape)
            q += 2
        elif notation == JSON:
            store_u4(q + 1, _CONTROL)
            store_u1(q + 4, 48 + (byte >> 4))
            low = byte & 15
            store_u1(q + 5, low + (48 if low < 10 else 87))
            q += 6
        else:
            store_u1(q + 1, 120)  # x
            q = put_hex(q + 2, p + i - 1, 1)
    return q


@helper
def put_text(q: int, p: int, size: int, notation: int) -> int:
    """Write text in its quotes."""
    mark = 34 if notation == JSON else 39
    store_u1(q, mark)
    q = put_escaped(q + 1, p, size, notation)
    store_u1(q, mark)
    return q + 1
