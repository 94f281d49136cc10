"""Kernel helpers that write numbers, times and bytes as digits. The caller ensures that the output has space."""

# ruff: noqa: PLR0911  (one return a kind of byte)

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import (
    load_i4,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    move,
    negate,
    store_u1,
    store_u4,
    store_u8,
)

_LOWEST_INT64 = -(1 << 63)
_HIGHEST_INT64 = (1 << 63) - 1
_GROUP = 1_000_000_000


@helper
def load_short(p: int, size: int) -> int:
    """Load a little-endian number of 1 to 4 bytes."""
    if size == 1:
        return load_u1(p)
    if size == 2:
        return load_u2(p)
    if size == 3:
        return load_u2(p) | load_u1(p + 2) << 16
    return load_u4(p)


@helper
def put_digits(q: int, value: int, width: int) -> int:
    """Write `value` >= 0 with leading zeros."""
    for i in range(width - 1, -1, -1):
        rest = value // 10
        store_u1(q + i, 48 + value - rest * 10)
        value = rest
    return q + width


@helper
def put_number(q: int, value: int) -> int:
    if value < 0:
        store_u1(q, 45)
        q += 1
        if value == _LOWEST_INT64:
            store_u1(put_digits(q, 922337203685477580, 18), 56)
            return q + 19
        value = -value
    width = 1
    bound = 10
    while width < 19 and value >= bound:
        width += 1
        bound *= 10
    return put_digits(q, value, width)


@helper
def put_unsigned(q: int, value: int) -> int:
    """Write the 64 bits of `value` as an unsigned number, the type of GTID sequence numbers."""
    if value >= 0:
        return put_number(q, value)
    tens = (value >> 1 & _HIGHEST_INT64) // 5
    q = put_number(q, tens)
    store_u1(q, 48 + ((value - tens * 10) & 15))
    return q + 1


@helper
def put_time(q: int, seconds: int) -> int:
    """Write seconds since 1970 as YYYY-MM-DD hh:mm:ss in UTC."""
    days = seconds // 86400
    clock = seconds - days * 86400
    # Days to a date of the Gregorian calendar, by eras of 400 years that start in March (days_from_civil, reversed).
    shifted = days + 719468
    era = shifted // 146097
    day_of_era = shifted - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    q = put_digits(q, year_of_era + era * 400 + (1 if month <= 2 else 0), 4)
    store_u1(q, 45)
    q = put_digits(q + 1, month, 2)
    store_u1(q, 45)
    q = put_digits(q + 1, day_of_year - (153 * shifted_month + 2) // 5 + 1, 2)
    store_u1(q, 32)
    q = put_digits(q + 1, clock // 3600, 2)
    store_u1(q, 58)
    q = put_digits(q + 1, clock // 60 % 60, 2)
    store_u1(q, 58)
    return put_digits(q + 1, clock % 60, 2)


@helper
def put_decimal(q: int, p: int, size: int, scale: int) -> int:
    """Write a scaled integer of `size` bytes with a decimal point before the last `scale` digits."""
    if size == 16:
        low = load_u8(p)
        high = load_u8(p + 8)
    else:
        low = load_i4(p) if size == 4 else load_u8(p)
        high = -1 if low < 0 else 0
    if high < 0:
        store_u1(q, 45)
        q += 1
        high, low = negate(high, low)
    if high == 0 and low >= 0 and scale < 19:
        power = 1
        for _ in range(scale):
            power *= 10
        whole = low // power
        q = put_number(q, whole)
        if scale:
            store_u1(q, 46)
            q = put_digits(q + 1, low - whole * power, scale)
        return q
    digits = q + 8
    count = 45
    for group in range(4, -1, -1):
        top = high >> 32 & 0xFFFFFFFF
        part3 = top // _GROUP
        top = (top - part3 * _GROUP) << 32 | (high & 0xFFFFFFFF)
        part2 = top // _GROUP
        top = (top - part2 * _GROUP) << 32 | (low >> 32 & 0xFFFFFFFF)
        part1 = top // _GROUP
        top = (top - part1 * _GROUP) << 32 | (low & 0xFFFFFFFF)
        part0 = top // _GROUP
        put_digits(digits + group * 9, top - part0 * _GROUP, 9)
        high = part3 << 32 | part2
        low = part1 << 32 | part0
    first = 0
    while first < count - scale - 1 and load_u1(digits + first) == 48:
        first += 1
    whole = count - scale - first
    move(q, digits + first, whole)
    q += whole
    if scale:
        store_u1(q, 46)
        move(q + 1, digits + count - scale, scale)
        q += scale + 1
    return q


@helper
def put_hex(q: int, p: int, size: int) -> int:
    for i in range(size):
        byte = load_u1(p + i)
        high = byte >> 4
        low = byte & 15
        store_u1(q, high + (48 if high < 10 else 55))
        store_u1(q + 1, low + (48 if low < 10 else 55))
        q += 2
    return q


# They copy eight bytes at a time while none of them needs an escape.


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
