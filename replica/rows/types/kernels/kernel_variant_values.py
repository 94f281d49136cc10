# ruff: noqa: PLR0911, PLR1714  (one return a type; addresses by position; numba has no sets)
"""Kernels that write one value in Spark's VARIANT encoding: a header byte, then number, text or bytes."""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import (
    copy,
    load_f4,
    load_f8,
    load_i1,
    load_i2,
    load_i4,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    move,
    store_f4,
    store_f8,
    store_u1,
    store_u2,
    store_u4,
    store_u8,
)
from replica.rows.types.kernels.kernel_charsets import NO_TEXT, is_ascii, is_utf8, write_repaired
from replica.rows.types.kernels.kernel_dates import temporal
from replica.rows.types.kernels.kernel_numbers import (
    CORRUPT,
    INVALID,
    NO_BRANCH,
    big_endian,
    copy_short,
    decimal_small,
    decimal_wide,
    rounded,
    short_little_endian,
)
from replica.rows.types.kernels.kernel_text import MAX_TEXT, label, text_room, time_text, write_text
from replica.rows.types.kinds import KIND_ROUNDED_DOUBLE, KIND_ROUNDED_FLOAT, Kind, PlanRecord

# First bytes of primitive values: type number << 2.
NULL = 0
INT1 = 3 << 2
INT2 = 4 << 2
INT4 = 5 << 2
INT8 = 6 << 2
DOUBLE = 7 << 2
DECIMAL4 = 8 << 2
DECIMAL8 = 9 << 2
DECIMAL16 = 10 << 2
DATE = 11 << 2
TIMESTAMP = 12 << 2
TIMESTAMP_NTZ = 13 << 2
FLOAT = 14 << 2
BINARY = 15 << 2
STRING = 16 << 2
SHORT_STRING = 1  # with the length << 2
MAX_SHORT = 63
BEYOND_ASCII = -3
NO_ROOM = -4
ARRAY = 3  # with the bytes of an offset, minus one, << 2
LARGE_ARRAY = 1 << 4  # the count has four bytes
# Size of the longest value except text and bytes: DECIMAL16 with its scale. Rounded up, because stores write words.
FIXED_ROOM = 32
TEXT_HEAD = 5


@helper
def put_integer(target: int, value: int) -> int:
    if -128 <= value <= 127:
        store_u1(target, INT1)
        store_u1(target + 1, value)
        return 2
    if -32768 <= value <= 32767:
        store_u1(target, INT2)
        store_u2(target + 1, value)
        return 3
    if -2147483648 <= value <= 2147483647:
        store_u1(target, INT4)
        store_u4(target + 1, value)
        return 5
    store_u1(target, INT8)
    store_u8(target + 1, value)
    return 9


@helper
def put_unsigned(target: int, value: int) -> int:
    """Write 64 unsigned bits; values beyond BIGINT become a decimal."""
    if value >= 0:
        return put_integer(target, value)
    store_u1(target, DECIMAL16)
    store_u1(target + 1, 0)
    store_u8(target + 2, value)
    store_u8(target + 10, 0)
    return 18


@helper
def put_string(target: int, source: int, size: int, readable: int) -> int:
    if size <= MAX_SHORT:
        store_u1(target, SHORT_STRING | size << 2)
        copy_short(target + 1, source, size, readable)
        return size + 1
    store_u1(target, STRING)
    store_u4(target + 1, size)
    copy(target + TEXT_HEAD, source, size)
    return size + TEXT_HEAD


@helper
def head_string(target: int, size: int) -> int:
    """Write the header of a text that was written at target + TEXT_HEAD, and move the text if it is short."""
    if size <= MAX_SHORT:
        store_u1(target, SHORT_STRING | size << 2)
        move(target + 1, target + TEXT_HEAD, size)
        return size + 1
    store_u1(target, STRING)
    store_u4(target + 1, size)
    return size + TEXT_HEAD


@helper
def head_bytes(target: int, size: int) -> int:
    store_u1(target, BINARY)
    store_u4(target + 1, size)
    return size + TEXT_HEAD


@helper
def put_decimal(target: int, p: int, plan: int) -> int:
    shape = load_u8(plan + PlanRecord.a)
    size = load_u8(plan + PlanRecord.aux)
    store_u1(target + 1, load_u8(plan + PlanRecord.b))
    if size == 16:
        high, low, corrupt = decimal_wide(p, shape)
        if corrupt:
            return CORRUPT
        store_u1(target, DECIMAL16)
        store_u8(target + 2, low)
        store_u8(target + 10, high)
        return 18
    value = decimal_small(p, shape)
    if value == CORRUPT:
        return CORRUPT
    store_u1(target, DECIMAL4 if size == 4 else DECIMAL8)
    store_u8(target + 2, value)
    return 2 + size


@helper
def value_room(kind: int, p: int, size: int, plan: int) -> int:
    """Return the maximal bytes that `put_value` writes, or CORRUPT or NO_BRANCH."""
    if kind == Kind.TEXT or kind == Kind.BYTES:
        return size + TEXT_HEAD
    if kind == Kind.ENUM:
        table = load_u8(plan + PlanRecord.aux)
        index = short_little_endian(p, size)
        if index > load_u4(table):
            return CORRUPT
        if index == 0:
            return TEXT_HEAD
        _, length = label(table, index - 1)
        return length + TEXT_HEAD
    if kind != Kind.DECIMAL_TEXT and kind >= Kind.INT8 and kind <= Kind.OLD_TIME:
        return max(FIXED_ROOM, MAX_TEXT + TEXT_HEAD)
    if kind >= KIND_ROUNDED_FLOAT and kind <= KIND_ROUNDED_DOUBLE:
        return FIXED_ROOM
    if kind == Kind.VECTOR:  # five bytes a component, up to four bytes of offset, and header and count
        return CORRUPT if size & 3 else (size >> 2) * 9 + 9
    room = text_room(kind, p, size, plan)
    return room + TEXT_HEAD if room >= 0 else room


@helper
def put_vector(target: int, p: int, size: int) -> int:
    """Write an array of floats."""
    count = size >> 2
    values = count * 5
    width = 1 if values < 1 << 8 else 2 if values < 1 << 16 else 3
    q = target
    store_u1(q, ARRAY | (width - 1) << 2 | (LARGE_ARRAY if count > 255 else 0))
    if count > 255:
        store_u4(q + 1, count)
        q += 5
    else:
        store_u1(q + 1, count)
        q += 2
    for i in range(count + 1):  # an offset has at most three bytes; the next store overwrites the fourth
        store_u4(q, i * 5)
        q += width
    for i in range(count):
        store_u1(q, FLOAT)
        store_u4(q + 1, load_u4(p + i * 4))
        q += 5
    return q - target


@helper
def put_beyond_ascii(target: int, p: int, size: int, strict: int, limit: int) -> int:
    """Write text with bytes beyond ASCII, repaired if it is not valid UTF-8.

    Returns NO_TEXT for invalid text in strict mode, NO_ROOM if repaired text may exceed `limit`. It is separate from
    `put_value`, which handles most texts: a kernel with this function inside runs at half the speed.
    """
    if is_utf8(p, size):
        return put_string(target, p, size, 0)
    if strict:
        return NO_TEXT
    if target + size * 3 + TEXT_HEAD > limit:
        return NO_ROOM
    return head_string(target, write_repaired(target + TEXT_HEAD, p, size))


@helper
def put_value(kind: int, target: int, p: int, size: int, plan: int, readable: int) -> int:
    """Write one value as VARIANT; return its size, or a negative code.

    CORRUPT: bytes that the server never writes. NO_BRANCH: a kind without a branch. INVALID: an invalid date that is an
    error. NO_TEXT: invalid text that is an error. BEYOND_ASCII: the caller must call `put_beyond_ascii`.
    """
    if kind == Kind.TEXT:
        return put_string(target, p, size, readable) if is_ascii(p, size) else BEYOND_ASCII
    if kind == Kind.INT32:
        return put_integer(target, load_i4(p))
    if kind == Kind.INT64:
        return put_integer(target, load_u8(p))
    if kind == Kind.INT8:
        return put_integer(target, load_i1(p))
    if kind == Kind.INT16:
        return put_integer(target, load_i2(p))
    if kind == Kind.INT24:
        return put_integer(target, load_u2(p) | (load_i1(p + 2) << 16))
    if kind == Kind.UINT8 or kind == Kind.UINT16 or kind == Kind.UINT24 or kind == Kind.UINT32:
        return put_integer(target, short_little_endian(p, size))
    if kind == Kind.UINT64:
        return put_unsigned(target, load_u8(p))
    if kind == Kind.BIT or kind == Kind.BIT64:
        return put_unsigned(target, big_endian(p, size))
    if kind == Kind.YEAR:
        year = load_u1(p)
        return put_integer(target, year + 1900 if year else 0)
    if kind == Kind.FLOAT:
        store_u1(target, FLOAT)
        store_u4(target + 1, load_u4(p))
        return 5
    if kind == Kind.DOUBLE:
        store_u1(target, DOUBLE)
        store_u8(target + 1, load_u8(p))
        return 9
    if kind == Kind.DECIMAL:
        return put_decimal(target, p, plan)
    if kind == Kind.BYTES:
        copy(target + TEXT_HEAD, p, size)
        return head_bytes(target, size)
    if kind == Kind.ENUM:
        index = short_little_endian(p, size)
        if index == 0:
            return head_string(target, 0)
        text, length = label(load_u8(plan + PlanRecord.aux), index - 1)
        return put_string(target, text, length, 32)
    if (
        kind == Kind.DATE
        or kind == Kind.TIME
        or kind == Kind.OLD_TIME
        or kind == Kind.DATETIME
        or kind == Kind.TIMESTAMP
        or kind == Kind.OLD_DATETIME
        or kind == Kind.OLD_TIMESTAMP
    ):
        value = temporal(kind, p, load_u8(plan + PlanRecord.a))
        if value <= INVALID:
            if value == NO_BRANCH or load_u8(plan + PlanRecord.b):
                return value
            store_u1(target, NULL)
            return 1
        if kind == Kind.TIME or kind == Kind.OLD_TIME:
            return head_string(target, time_text(target + TEXT_HEAD, value, load_u8(plan + PlanRecord.b)))
        if kind == Kind.DATE:
            store_u1(target, DATE)
            store_u4(target + 1, value)
            return 5
        store_u1(target, TIMESTAMP if kind == Kind.TIMESTAMP or kind == Kind.OLD_TIMESTAMP else TIMESTAMP_NTZ)
        store_u8(target + 1, value)
        return 9
    if kind == Kind.VECTOR:
        return put_vector(target, p, size)
    if kind == KIND_ROUNDED_FLOAT:
        store_u1(target, FLOAT)
        store_f4(target + 1, rounded(load_f4(p), load_u8(plan + PlanRecord.a)))
        return 5
    if kind == KIND_ROUNDED_DOUBLE:
        store_u1(target, DOUBLE)
        store_f8(target + 1, rounded(load_f8(p), load_u8(plan + PlanRecord.a)))
        return 9
    if kind == Kind.GEOMETRY and size == 0:
        store_u1(target, NULL)
        return 1
    length = write_text(kind, target + TEXT_HEAD, p, size, plan)
    if length < 0:
        return length
    if kind == Kind.PADDED_BYTES or kind == Kind.GEOMETRY:
        return head_bytes(target, length)
    return head_string(target, length)
