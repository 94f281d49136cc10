# ruff: noqa: PLR0911  (one return a form)
"""Kernels for key bytes: the canonical form of a key's values in a row image (see keys.py).

Every function takes addresses that its caller has checked. A key part takes `size` bytes, or, if `size` is 0, twice the
bytes of its value plus two. The functions may write up to `ROOM` bytes beyond the key.
"""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import (
    copy,
    load_i1,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    store_u1,
    store_u2,
    store_u4,
)
from replica.rows.types.kernels.kernel_dates import DATETIME_OFFSET, TIME_OFFSET
from replica.rows.types.kinds import KeyForm, KeyRecord

ROOM = 8
SPOT_BYTES = 16  # a value's address and size, one pair per key part, in key order


@helper
def store_big(out: int, value: int, size: int) -> None:
    """Store the low `size` bytes of a number, big-endian."""
    for i in range(size):
        store_u1(out + i, value >> (8 * (size - 1 - i)))


@helper
def load_little(value: int, size: int) -> int:
    """Load an unsigned number of 1 to 8 bytes."""
    if size == 4:
        return load_u4(value)
    if size == 8:
        return load_u8(value)
    number = 0
    for i in range(size):
        number |= load_u1(value + i) << (8 * i)
    return number


@helper
def copy_padded(out: int, value: int, size: int, padded: int) -> None:
    """Copy a value of `size` bytes, and pad it with zeros to `padded` bytes."""
    size = min(size, padded)
    copy(out, value, size)
    for i in range(size, padded):
        store_u1(out + i, 0)


@helper
def turn_uuid(out: int) -> None:
    """Put the 16 bytes of a UUID from text order into the order in which the server stores them."""
    version = load_u1(out + 6)
    if version == 0 or version >= 0x60 or load_u1(out + 8) < 0x80:
        return
    node = load_u4(out + 10)
    rest = load_u2(out + 14)
    clock = load_u2(out + 8)
    high = load_u2(out + 6)
    middle = load_u2(out + 4)
    low = load_u4(out)
    store_u4(out, node)
    store_u2(out + 4, rest)
    store_u2(out + 6, clock)
    store_u2(out + 8, high)
    store_u2(out + 10, middle)
    store_u4(out + 12, low)


@helper
def escape(out: int, value: int, size: int) -> int:
    """Write bytes with 00 FF for 00, followed by 00 00; return the address after them."""
    for i in range(size):
        byte = load_u1(value + i)
        store_u1(out, byte)
        out += 1
        if byte == 0:
            store_u1(out, 0xFF)
            out += 1
    store_u2(out, 0)
    return out + 2


@helper
def new_datetime(packed: int) -> int:
    """Return YYYYMMDDhhmmss as the number in the five bytes of DATETIME2."""
    day = packed // 1_000_000
    clock = packed - day * 1_000_000
    months = day // 10000 * 13 + day // 100 % 100
    bits = months << 22 | (day % 100) << 17 | (clock // 10000) << 12 | (clock // 100 % 100) << 6 | clock % 100
    return bits + DATETIME_OFFSET


@helper
def new_time(packed: int) -> int:
    """Return a signed hhmmss as the number in the three bytes of TIME2."""
    whole = abs(packed)
    bits = (whole // 10000) << 12 | (whole // 100 % 100) << 6 | whole % 100
    return (-bits if packed < 0 else bits) + TIME_OFFSET


@helper
def append_key(part: int, value: int, size: int, out: int) -> int:
    """Write the key bytes of one value; return the address after them.

    `part` is the address of its KeyRecord. `value` and `size` give the bytes of the value, without its length prefix.
    """
    form = load_u8(part + KeyRecord.form)
    if form == KeyForm.SIGNED:
        store_big(out, load_little(value, size) ^ (1 << (8 * size - 1)), size)
        return out + size
    if form == KeyForm.UNSIGNED:
        store_big(out, load_little(value, size), size)
        return out + size
    if form == KeyForm.STORED:
        copy(out, value, size)
        return out + size
    if form == KeyForm.PADDED:
        padded = load_u8(part + KeyRecord.size)
        copy_padded(out, value, size, padded)
        return out + padded
    if form == KeyForm.UUID:
        copy_padded(out, value, size, 16)
        turn_uuid(out)
        return out + 16
    if form == KeyForm.OLD_DATETIME:
        store_big(out, new_datetime(load_u8(value)), 5)
        return out + 5
    if form == KeyForm.OLD_TIME:
        store_big(out, new_time(load_u2(value) | (load_i1(value + 2) << 16)), 3)
        return out + 3
    return escape(out, value, size)  # BYTES, TEXT


@helper
def key_room(parts: int, count: int, spots: int) -> int:
    """Return the bytes to allocate for the key of these values, including `ROOM`."""
    room = ROOM
    for i in range(count):
        size = load_u8(parts + i * KeyRecord.BYTES + KeyRecord.size)
        room += size or 2 * load_u8(spots + i * SPOT_BYTES + 8) + 2
    return room


@helper
def write_key(parts: int, count: int, spots: int, out: int) -> int:
    """Write the key of the values at `spots`, one per part; return the address after it."""
    for i in range(count):
        spot = spots + i * SPOT_BYTES
        out = append_key(parts + i * KeyRecord.BYTES, load_u8(spot), load_u8(spot + 8), out)
    return out
