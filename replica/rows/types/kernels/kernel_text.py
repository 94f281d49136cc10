# ruff: noqa: PLR0911, PLR1714  (one return a type; parts of a date by position; numba has no sets)
"""Kernels that write values as text, in the form that SELECT prints.

A function that writes takes an address with enough space (`text_room` gives the size) and returns the bytes written. It
returns CORRUPT for bytes that the server never writes, and NO_BRANCH for a kind that is not text.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import copy, load_u1, load_u2, load_u4, load_u4be, load_u8, store_u1
from replica.rows.types import kinds as pr
from replica.rows.types.kernels.kernel_charsets import write_multibyte, write_table_text, write_utf16, write_utf32
from replica.rows.types.kernels.kernel_dates import MICROS, datetime_bits, fraction, old_clock
from replica.rows.types.kernels.kernel_numbers import (
    CORRUPT,
    GROUP,
    NO_BRANCH,
    POWERS,
    decimal_part,
    little_endian,
    sign_mask,
)
from replica.rows.types.kinds import Kind, PlanRecord

# The longest text of a value of bounded length: DECIMAL(65,0..38) with sign, point and a zero before the point.
MAX_TEXT = 80
SRID_BYTES = 4
MINUS, POINT, ZERO, COLON, COMMA, SPACE = b"-.0:, "


@helper
def write_digits(target: int, value: int, digits: int) -> None:
    """Write `value` with exactly `digits` decimal digits."""
    for i in range(digits - 1, -1, -1):
        rest = value // 10
        store_u1(target + i, ZERO + value - rest * 10)
        value = rest


@helper
def decimal_text(target: int, address: int, shape: int, scale: int) -> int:
    """Write a packed DECIMAL of any precision as text, with all digits of its scale."""
    lead = shape & 15
    groups = (shape >> 4) & 15
    fractions = (shape >> 8) & 15
    tail = (shape >> 12) & 15
    flip = sign_mask(address)
    # Write all digits two bytes after the target, then remove leading zeros and add the sign.
    p = address
    q = target + 2
    if lead:
        value = decimal_part(p, lead, flip, address)
        if value >= (shape >> 16) & 0xFFFFFFFF:
            return CORRUPT
        write_digits(q, value, 9)
        q += 9
        p += lead
    for i in range(groups + fractions):
        if i == groups:
            store_u1(q, POINT)
            q += 1
        value = decimal_part(p, 4, flip, address)
        if value >= GROUP:
            return CORRUPT
        write_digits(q, value, 9)
        q += 9
        p += 4
    if tail:
        if fractions == 0:
            store_u1(q, POINT)
            q += 1
        digits = shape >> 48
        value = decimal_part(p, tail, flip, address)
        if value >= POWERS[digits]:
            return CORRUPT
        write_digits(q, value, digits)
        q += digits
    start = target + 2
    point = q - scale - (1 if scale else 0)
    while start < point and load_u1(start) == ZERO:
        start += 1
    if start == point:  # nothing before the point: SELECT prints one zero
        start -= 1
        store_u1(start, ZERO)
    if flip:
        start -= 1
        store_u1(start, MINUS)
    size = q - start
    for i in range(size):
        store_u1(target + i, load_u1(start + i))
    return size


@helper
def write_fraction(target: int, micros: int, digits: int) -> int:
    if digits == 0:
        return 0
    store_u1(target, POINT)
    write_digits(target + 1, micros // POWERS[6 - digits], digits)
    return digits + 1


@helper
def date_text(target: int, year: int, month: int, day: int) -> int:
    write_digits(target, year, 4)
    store_u1(target + 4, MINUS)
    write_digits(target + 5, month, 2)
    store_u1(target + 7, MINUS)
    write_digits(target + 8, day, 2)
    return 10


@helper
def clock_text(target: int, clock: int) -> int:
    """Write hh:mm:ss of h << 12 | m << 6 | s; the hours have two digits or three."""
    hour = clock >> 12
    size = 3 if hour > 99 else 2
    write_digits(target, hour, size)
    store_u1(target + size, COLON)
    write_digits(target + size + 1, (clock >> 6) & 63, 2)
    store_u1(target + size + 3, COLON)
    write_digits(target + size + 4, clock & 63, 2)
    return size + 6


@helper
def datetime_text(target: int, year: int, month: int, day: int, clock: int, micros: int, digits: int) -> int:
    date_text(target, year, month, day)
    store_u1(target + 10, SPACE)
    size = 11 + clock_text(target + 11, clock)
    return size + write_fraction(target + size, micros, digits)


@helper
def timestamp_text(target: int, seconds: int, micros: int, digits: int) -> int:
    """Write seconds since 1970 in UTC; 0 without a fraction is the zero timestamp."""
    if seconds == 0 and micros == 0:
        return datetime_text(target, 0, 0, 0, 0, 0, digits)
    number = seconds // 86_400
    rest = seconds - number * 86_400
    # Civil date of a day number: eras of 400 years that begin in March, then years, then months of 153 / 5 days.
    z = number + 719_468
    era = z // 146_097
    doe = z - era * 146_097
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    index = (5 * doy + 2) // 153
    day = doy - (153 * index + 2) // 5 + 1
    month = index + 3 if index < 10 else index - 9
    year = yoe + era * 400 + (1 if month <= 2 else 0)
    clock = ((rest // 3600) << 12) | ((rest // 60 % 60) << 6) | (rest % 60)
    return datetime_text(target, year, month, day, clock, micros, digits)


@helper
def time_text(target: int, micros: int, digits: int) -> int:
    p = target
    if micros < 0:
        store_u1(p, MINUS)
        p += 1
        micros = -micros
    seconds = micros // MICROS
    clock = ((seconds // 3600) << 12) | ((seconds // 60 % 60) << 6) | (seconds % 60)
    p += clock_text(p, clock)
    p += write_fraction(p, micros - seconds * MICROS, digits)
    return p - target


@helper
def label(table: int, index: int) -> tuple[int, int]:
    """Return address and size of one label; binding.label_table describes the table."""
    start = load_u4(table + 4 + index * 4)
    return table + start, load_u4(table + 8 + index * 4) - start


@helper
def set_size(table: int, bits: int) -> int:
    """Return the maximal size of the text of a SET, CORRUPT if a bit has no label."""
    count = load_u4(table)
    size = 0
    for i in range(64):
        if (bits >> i) & 1:
            if i >= count:
                return CORRUPT
            _, length = label(table, i)
            size += length + 1
    return size


@helper
def write_set(target: int, table: int, bits: int) -> int:
    """Write the text of a SET.

    As in the server, no comma is written while the text is empty, even after an empty label.
    """
    p = target
    for i in range(64):
        if (bits >> i) & 1:
            if p > target:
                store_u1(p, COMMA)
                p += 1
            text, size = label(table, i)
            copy(p, text, size)
            p += size
    return p - target


@helper
def hex_digit(value: int) -> int:
    return value + (48 if value < 10 else 87)


@helper
def padded_byte(source: int, size: int, index: int) -> int:
    """Return one byte of a padded value: the log omits trailing zeros of BINARY and similar types."""
    return load_u1(source + index) if index < size else 0


@helper
def uuid_text(target: int, source: int, size: int) -> int:
    p = target
    for i in range(16):
        if i in (4, 6, 8, 10):
            store_u1(p, MINUS)
            p += 1
        byte = padded_byte(source, size, i)
        store_u1(p, hex_digit(byte >> 4))
        store_u1(p + 1, hex_digit(byte & 15))
        p += 2
    return p - target


@helper
def inet4_text(target: int, source: int, size: int, skip: int) -> int:
    """Write the dotted quad of the four bytes at offset `skip` of the value."""
    p = target
    for i in range(4):
        if i:
            store_u1(p, POINT)
            p += 1
        byte = padded_byte(source, size, skip + i)
        digits = 3 if byte > 99 else 2 if byte > 9 else 1
        write_digits(p, byte, digits)
        p += digits
    return p - target


@helper
def inet6_word(source: int, size: int, index: int) -> int:
    return padded_byte(source, size, index * 2) << 8 | padded_byte(source, size, index * 2 + 1)


@helper
def inet6_text(target: int, source: int, size: int) -> int:
    """Write an IPv6 address as Inet6::to_string does.

    The first longest run of zero words is shortened. The tails of ::x and ::ffff:x are dotted.
    """
    gap = -1
    gap_size = 0
    run = 0
    for i in range(8):
        run = run + 1 if inet6_word(source, size, i) == 0 else 0
        if run > gap_size:
            gap_size = run
            gap = i - run + 1
    p = target
    i = 0
    while i < 8:
        if i == gap:
            if i == 0:
                store_u1(p, COLON)
                p += 1
            store_u1(p, COLON)
            p += 1
            i += gap_size
            continue
        if i == 6 and gap == 0 and (gap_size == 6 or (gap_size == 5 and inet6_word(source, size, 5) == 0xFFFF)):
            return p - target + inet4_text(p, source, size, 12)
        word = inet6_word(source, size, i)
        digits = 4 if word > 0xFFF else 3 if word > 0xFF else 2 if word > 0xF else 1
        for d in range(digits - 1, -1, -1):
            store_u1(p, hex_digit((word >> (4 * d)) & 15))
            p += 1
        if i < 7:
            store_u1(p, COLON)
            p += 1
        i += 1
    return p - target


@helper
def text_room(kind: int, p: int, size: int, plan: int) -> int:
    """Return the maximal bytes that `write_text` writes for a value of `size` bytes at `p`, or CORRUPT or NO_BRANCH."""
    if kind == Kind.LATIN1 or (kind >= pr.KIND_MULTIBYTE and kind <= pr.KIND_UTF32):
        return size * 3 + 4
    if kind == Kind.GEOMETRY:
        return CORRUPT if size and size < SRID_BYTES else size
    if kind == Kind.VECTOR:
        return CORRUPT if size & 3 else size
    if kind == Kind.PADDED_BYTES:
        return max(size, load_u8(plan + PlanRecord.a))
    if kind == Kind.SET:
        return set_size(load_u8(plan + PlanRecord.aux), little_endian(p, size))
    if kind == Kind.UUID or kind == Kind.INET4 or kind == Kind.INET6:
        return CORRUPT if size > load_u8(plan + PlanRecord.a) else MAX_TEXT
    if (
        kind == Kind.DECIMAL_TEXT
        or kind == Kind.DATE_TEXT
        or kind == Kind.DATETIME_TEXT
        or kind == Kind.TIMESTAMP_TEXT
        or kind == Kind.OLD_DATETIME_TEXT
        or kind == Kind.OLD_TIMESTAMP_TEXT
        or kind == pr.KIND_ROW_END_TEXT
    ):
        return MAX_TEXT
    return NO_BRANCH


@helper
def write_text(kind: int, target: int, p: int, size: int, plan: int) -> int:
    """Write the value as SELECT prints it; return the bytes written.

    Returns CORRUPT, NO_BRANCH, or, in strict mode, NO_TEXT for bytes that are invalid in the character set.
    """
    extra = load_u8(plan + PlanRecord.a)
    digits = load_u8(plan + PlanRecord.b)  # of a fraction; for character sets: whether to be strict
    if kind == Kind.LATIN1:
        return write_table_text(target, p, size, load_u8(plan + PlanRecord.aux), digits)
    if kind == pr.KIND_MULTIBYTE:
        return write_multibyte(target, p, size, load_u8(plan + PlanRecord.aux), digits)
    if kind == pr.KIND_UTF16:
        return write_utf16(target, p, size, extra, digits)
    if kind == pr.KIND_UTF32:
        return write_utf32(target, p, size, digits)
    if kind == Kind.GEOMETRY or kind == Kind.VECTOR:
        copy(target, p, size)
        return size
    if kind == Kind.PADDED_BYTES:
        copy(target, p, size)
        for i in range(size, extra):
            store_u1(target + i, 0)
        return max(size, extra)
    if kind == Kind.SET:
        return write_set(target, load_u8(plan + PlanRecord.aux), little_endian(p, size))
    if kind == Kind.DECIMAL_TEXT:
        return decimal_text(target, p, extra, digits)
    if kind == Kind.DATE_TEXT:
        packed = load_u2(p) | (load_u1(p + 2) << 16)
        if packed >> 9 > 9999:
            return CORRUPT
        return date_text(target, packed >> 9, (packed >> 5) & 15, packed & 31)
    if kind == Kind.DATETIME_TEXT:
        packed = datetime_bits(p)
        months = packed >> 22
        micros = fraction(p + 5, extra)
        if packed < 0 or months > 9999 * 13 + 12 or micros >= MICROS:
            return CORRUPT
        year = months // 13
        clock = packed & 0x1FFFF
        return datetime_text(target, year, months - year * 13, (packed >> 17) & 31, clock, micros, digits)
    if kind == Kind.TIMESTAMP_TEXT or kind == pr.KIND_ROW_END_TEXT:
        micros = fraction(p + 4, extra)
        if micros >= MICROS:
            return CORRUPT
        return timestamp_text(target, load_u4be(p), micros, digits)
    if kind == Kind.OLD_TIMESTAMP_TEXT:
        return timestamp_text(target, load_u4(p), 0, digits)
    if kind == Kind.OLD_DATETIME_TEXT:
        packed = load_u8(p)
        date = packed // 1_000_000
        clock = old_clock(packed - date * 1_000_000)
        if packed < 0 or date > 99_991_231 or clock >> 12 > 23:
            return CORRUPT
        return datetime_text(target, date // 10_000, date // 100 % 100, date % 100, clock, 0, digits)
    if kind == Kind.UUID:
        return uuid_text(target, p, size)
    if kind == Kind.INET4:
        return inet4_text(target, p, size, 0)
    if kind == Kind.INET6:
        return inet6_text(target, p, size)
    return NO_BRANCH
