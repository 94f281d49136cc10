"""Kernels that convert text from the server's character sets to UTF-8.

Sets with one byte a character use tables, and so do sets with lead bytes and up to three bytes a character. charsets.py
makes the tables from the reference decoder. UTF-16 and UTF-32 are computed. Invalid bytes become U+FFFD; a `strict`
function returns NO_TEXT instead. Every function writes at most three bytes per byte read, and up to three bytes beyond.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u1, load_u2, load_u2be, load_u4, load_u4be, load_u8, store_u1, store_u4

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


# utf8mb3 and utf8mb4 columns are copied unchanged, but they may contain invalid UTF-8. The server's checks accept
# surrogates, and a change of the character set without conversion keeps any bytes. Each damaged sequence becomes one
# U+FFFD, up to its valid prefix (Unicode's maximal subparts), as in Python's decoder.


HIGH_BITS = 0x8080808080808080 - (1 << 64)
ALL_VALID = -1


@helper
def is_ascii(p: int, size: int) -> bool:
    """Return True if no byte has its top bit set."""
    end = p + size
    while end - p >= 64:
        low = load_u8(p) | load_u8(p + 8) | load_u8(p + 16) | load_u8(p + 24)
        high = load_u8(p + 32) | load_u8(p + 40) | load_u8(p + 48) | load_u8(p + 56)
        if (low | high) & HIGH_BITS:
            return False
        p += 64
    while end - p >= 8:
        if load_u8(p) & HIGH_BITS:
            return False
        p += 8
    if size >= 8:  # the last word may overlap: most texts are short, and loops over bytes are slow
        return load_u8(end - 8) & HIGH_BITS == 0
    if size >= 4:
        return (load_u4(p) | load_u4(end - 4)) & 0x80808080 == 0
    return size == 0 or (load_u1(p) | load_u1(p + (size >> 1)) | load_u1(end - 1)) & 0x80 == 0


@helper
def sequence(p: int, end: int) -> int:
    """Return the bytes of the character at `p`; for invalid bytes, minus the bytes that one U+FFFD replaces."""
    first = load_u1(p)
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    low = 0x80
    high = 0xBF
    size = 2
    if first >= 0xF0:
        size = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    elif first >= 0xE0:
        size = 3
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    for i in range(1, size):
        if p + i >= end:
            return -i
        byte = load_u1(p + i)
        if byte < low or byte > high:
            return -i
        low = 0x80
        high = 0xBF
    return size


@helper
def is_utf8(p: int, size: int) -> bool:
    end = p + size
    while p < end:
        while end - p >= 8 and load_u8(p) & HIGH_BITS == 0:
            p += 8
        while p < end:
            used = sequence(p, end)
            if used < 0:
                return False
            p += used
            if used == 1:
                break  # ASCII again: check whole words
    return True


@helper
def write_repaired(target: int, source: int, size: int) -> int:
    """Write the text with U+FFFD for invalid bytes; return the bytes written.

    It writes at most three bytes per byte read, and one byte beyond.
    """
    p = target
    q = source
    end = source + size
    while q < end:
        used = sequence(q, end)
        if used < 0:
            store_u4(p, REPLACEMENT)
            p += 3
            q -= used
        else:
            for i in range(used):
                store_u1(p + i, load_u1(q + i))
            p += used
            q += used
    return p - target


@kernel
def first_damaged(offsets: int, rows: int, data: int) -> int:
    """Find the first row of a string column (int32 offsets) with invalid UTF-8, or ALL_VALID."""
    if is_ascii(data, load_u4(offsets + rows * 4)):
        return ALL_VALID
    start = 0
    for row in range(rows):
        end = load_u4(offsets + row * 4 + 4)
        if not is_utf8(data + start, end - start):
            return row
        start = end
    return ALL_VALID


@kernel
def repaired_size(offsets: int, rows: int, data: int) -> int:
    """Return the bytes that `repair` writes."""
    start = 0
    total = 0
    for row in range(rows):
        end = load_u4(offsets + row * 4 + 4)
        q = data + start
        while q < data + end:
            used = sequence(q, data + end)
            total += used if used > 0 else 3
            q += abs(used)
        start = end
    return total


@kernel
def repair(offsets: int, rows: int, data: int, new_offsets: int, new_data: int) -> int:
    """Copy a string column with repaired text; return the bytes written.

    `new_data` must have space for `repaired_size` and one byte more.
    """
    store_u4(new_offsets, 0)
    start = 0
    used = 0
    for row in range(rows):
        end = load_u4(offsets + row * 4 + 4)
        if is_ascii(data + start, end - start):
            copy(new_data + used, data + start, end - start)
            used += end - start
        else:
            used += write_repaired(new_data + used, data + start, end - start)
        store_u4(new_offsets + row * 4 + 4, used)
        start = end
    return used
