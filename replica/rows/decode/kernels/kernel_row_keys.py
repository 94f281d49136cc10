"""Kernels that find the values of a key's columns in the images of a row, and detect missing ones."""

from __future__ import annotations

from replica.native.compile import helper
from replica.native.memory import load_u1, load_u8, store_u8
from replica.native.record import Record, word
from replica.rows.types.kernels.kernel_keys import key_room
from replica.rows.types.kernels.kernel_numbers import short_little_endian
from replica.rows.types.plan_record import PlanRecord


class RowKeyRecord(Record):
    """The key of one table map."""

    parts = word("address of a KeyRecord for each column of the key, in key order")
    count = word("how many, 0: the table's keys are not asked for")
    ranks = word("address of int64 per column of the wire: its number in the key, or -1")


class KeyValueRecord(Record):
    """The value of one column of a key in a row image: a spot of `kernel_keys`."""

    start = word("address")
    size = word("bytes, -1: the image does not hold the column, or holds NULL")


@helper
def find_key_values(
    plan: int, columns: int, present: int, bitmap: int, position: int, end: int, ranks: int, values: int
) -> int:
    """Return the address after the image at `position`, 0 if it exceeds the event's end; store its key values.

    `values` has a KeyValueRecord per key column. The records of columns that the image lacks are not changed.
    """
    p = position + ((present + 7) >> 3)
    if p > end:
        return 0
    whole = present == columns
    k = 0
    for c in range(columns):
        if not whole and (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
            continue
        null = (load_u1(position + (k >> 3)) >> (k & 7)) & 1
        k += 1
        size = 0
        if null:
            size = -1
        else:
            size = load_u8(plan + c * PlanRecord.BYTES + PlanRecord.width)
            if size < 0:
                prefix = -size
                if end - p < prefix:
                    return 0
                size = short_little_endian(p, prefix)
                p += prefix
            if end - p < size:
                return 0
        rank = load_u8(ranks + c * 8)
        if rank >= 0:
            store_u8(values + rank * KeyValueRecord.BYTES + KeyValueRecord.start, p)
            store_u8(values + rank * KeyValueRecord.BYTES + KeyValueRecord.size, size)
        if null == 0:
            p += size
    return p


@helper
def forget_values(values: int, count: int) -> None:
    for i in range(count):
        store_u8(values + i * KeyValueRecord.BYTES + KeyValueRecord.size, -1)


@helper
def inherit_values(before: int, after: int, count: int) -> None:
    """Fill missing key values of an after image from the before image: a column that it lacks was not set."""
    for i in range(count):
        offset = i * KeyValueRecord.BYTES
        if load_u8(after + offset + KeyValueRecord.size) < 0:
            store_u8(after + offset + KeyValueRecord.start, load_u8(before + offset + KeyValueRecord.start))
            store_u8(after + offset + KeyValueRecord.size, load_u8(before + offset + KeyValueRecord.size))


@helper
def most_key_bytes(parts: int, count: int, values: int) -> int:
    """Return the maximal bytes of the key, or -1 if one of its values is missing."""
    for i in range(count):
        if load_u8(values + i * KeyValueRecord.BYTES + KeyValueRecord.size) < 0:
            return -1
    return key_room(parts, count, values)


@helper
def compare_bytes(left: int, left_size: int, right: int, right_size: int) -> int:
    """Return -1, 0 or 1 if the first bytes sort before, equal to or after the second."""
    size = min(left_size, right_size)
    i = 0
    while i < size and load_u1(left + i) == load_u1(right + i):
        i += 1
    if i < size:
        return -1 if load_u1(left + i) < load_u1(right + i) else 1
    if left_size == right_size:
        return 0
    return -1 if left_size < right_size else 1
