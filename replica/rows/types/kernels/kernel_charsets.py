"""Kernels that convert text from the server's character sets to UTF-8.

Sets with one byte a character use tables, and so do sets with lead bytes and up to three bytes a character. charsets.py
makes the tables from the reference decoder. UTF-16 and UTF-32 are computed. Invalid bytes become U+FFFD; a `strict`
function returns NO_TEXT instead. Every function writes at most three bytes per byte read, and up to three bytes beyond.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import load_u1, load_u2, load_u2be, load_u4, load_u4be, store_u1, store_u4

# A table entry has a character's UTF-8 in its low three bytes. Its top byte is their number, or one of these markers.
TWO_BYTES = 0xFE  # lead byte of a character of two bytes: see entry 256 + both bytes
THREE_BYTES = 0xFF  # lead byte of a character of three bytes: see entry 256 + 65536 + the last two bytes
PAIRS = 256
TRIPLES = 256 + 65_536
REPLACEMENT = 3 << 24 | 0xBDBFEF
REPLACEMENT_CODE = 0xFFFD
NO_TEXT = -2


@helper
def write_table_text(target: int, source: int, size: int, table: int, strict: int) -> int:
    """Write text of a set with one byte a character."""
    p = target
    for i in range(size):
        entry = load_u4(table + load_u1(source + i) * 4)
        if strict and entry == REPLACEMENT:
            return NO_TEXT
        store_u4(p, entry)
        p += entry >> 24
    return p - target


@helper
def write_multibyte(target: int, source: int, size: int, table: int, strict: int) -> int:
    """Write text of a set with lead bytes.

    A lead byte without a valid second byte becomes U+FFFD, and its second byte is read separately.
    """
    p = target
    q = source
    end = source + size
    while q < end:
        entry = load_u4(table + load_u1(q) * 4)
        used = 1
        if entry >> 24 >= TWO_BYTES:
            used = 2
            place = -1
            if entry >> 24 == TWO_BYTES:
                if end - q >= 2:
                    place = PAIRS + load_u2be(q)
            elif end - q >= 3:
                place = TRIPLES + load_u2be(q + 1)
                used = 3
            entry = load_u4(table + place * 4) if place >= 0 else 0
            if entry == 0:
                entry = REPLACEMENT
                used = 1
        if strict and entry == REPLACEMENT:
            return NO_TEXT
        store_u4(p, entry)
        p += entry >> 24
        q += used
    return p - target


@helper
def write_code(target: int, code: int) -> int:
    """Write one code point in UTF-8."""
    if code < 0x80:
        store_u1(target, code)
        return 1
    if code < 0x800:
        store_u1(target, 0xC0 | code >> 6)
        store_u1(target + 1, 0x80 | (code & 63))
        return 2
    if code < 0x10000:
        store_u1(target, 0xE0 | code >> 12)
        store_u1(target + 1, 0x80 | (code >> 6 & 63))
        store_u1(target + 2, 0x80 | (code & 63))
        return 3
    store_u1(target, 0xF0 | code >> 18)
    store_u1(target + 1, 0x80 | (code >> 12 & 63))
    store_u1(target + 2, 0x80 | (code >> 6 & 63))
    store_u1(target + 3, 0x80 | (code & 63))
    return 4


@helper
def write_utf16(target: int, source: int, size: int, little: int, strict: int) -> int:
    """Write UTF-16 and UCS-2, big endian or little."""
    p = target
    q = source
    end = source + size
    while q < end:
        code = -1
        used = 2
        if end - q >= 2:
            code = load_u2(q) if little else load_u2be(q)
            if code & 0xF800 == 0xD800:
                low = 0
                if end - q >= 4:
                    low = load_u2(q + 2) if little else load_u2be(q + 2)
                if code < 0xDC00 and low & 0xFC00 == 0xDC00:
                    code = 0x10000 + ((code & 0x3FF) << 10 | (low & 0x3FF))
                    used = 4
                else:
                    code = -1
        if code < 0:
            if strict:
                return NO_TEXT
            code = REPLACEMENT_CODE
        p += write_code(p, code)
        q += used
    return p - target


@helper
def write_utf32(target: int, source: int, size: int, strict: int) -> int:
    """Write UTF-32, big endian."""
    p = target
    q = source
    end = source + size
    while q < end:
        code = load_u4be(q) if end - q >= 4 else -1
        if code < 0 or code > 0x10FFFF or code & ~0x7FF == 0xD800:
            if strict:
                return NO_TEXT
            code = REPLACEMENT_CODE
        p += write_code(p, code)
        q += 4
    return p - target
