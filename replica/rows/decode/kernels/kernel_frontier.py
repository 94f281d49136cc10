"""Kernel that decides, for tables that are delivered up to a key, which part of each row change is delivered.

An update that moves a key across the border counts by half. If the row leaves the delivered part, its before image is a
delete. If the row enters, its after image is an insert.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u1, store_u8
from replica.native.record import Record, word
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_images import end_if_same, open_event, skip_image
from replica.rows.decode.records import RunState
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernels.kernel_keys import key_room, write_key
from replica.rows.types.kernels.kernel_numbers import short_little_endian
from replica.rows.types.kinds import PlanRecord


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


# The part of a row change that is delivered.
DROPPED = 0
WHOLE = 1
LEAVES = 2  # only the before image
ENTERS = 3  # only the after image

# Return codes of the kernel, in addition to those of the decode kernels.
MORE_FLAGS = 20  # there is no room for the next row
UNTOLD_KEY = 21  # an image lacks a column of the key
PARTIAL_ROW = 22  # a row enters whose image lacks columns

MAX_KEY_BYTES = 1 << 14
"""Bytes of the longest key in canonical form: InnoDB's longest has 3072, each may take two, plus two per column."""


class FrontierRecord(Record):
    """The delivered part of one table map's table."""

    open = word("1: a part of it, 0: all or nothing")
    upto = word("address of the canonical bytes of the last key that is delivered")
    size = word("how many they are")
    selected = word("bit 1 << OP_*: a change of this kind is selected")
    delivered = word("the same, less what a filter takes away")
    compared = word("1: an update that changes nothing, and stays where it is, is left out")


class KeyScratch(Record):
    """Memory for the keys of one row."""

    before = word("address of KeyValueRecords")
    after = word("the same for the after image of an update")
    key = word("address of MAX_KEY_BYTES bytes")


@helper
def lies_inside(keys: int, values: int, scratch: int, frontier: int) -> int:
    """Return 1 if a key is at or before the frontier, 0 if it is after it, -1 if a key value is missing."""
    count = load_u8(keys + RowKeyRecord.count)
    parts = load_u8(keys + RowKeyRecord.parts)
    room = most_key_bytes(parts, count, values)
    if room < 0 or room > MAX_KEY_BYTES:
        return -1
    key = load_u8(scratch + KeyScratch.key)
    size = write_key(parts, count, values, key) - key
    upto = load_u8(frontier + FrontierRecord.upto)
    return 1 if compare_bytes(key, size, upto, load_u8(frontier + FrontierRecord.size)) <= 0 else 0


@kernel
def find_halves(
    data: int,
    events: int,
    work: int,
    work_size: int,
    slots: int,
    keys: int,
    frontiers: int,
    scratch: int,
    lengths: int,
    bases: int,
    flags: int,
    capacity: int,
    rows_before: int,
    run: int,
) -> int:
    """Write, for each row of open tables, which part of the change is delivered; return DONE, or a fault code.

    The worklist holds whole groups up to their last event of an open table, so that ordinals can be counted.
    `rows_before`: rows of group 0 before the range. `flags`: one byte per row. `bases`: int64 per event of the range;
    the flag of its row with the ordinal n is at bases + n. `lengths`: int64 per event, written for events of open
    tables only. It is the bytes of images up to the last selected row, 0 if none is selected. After MORE_FLAGS, call
    again with more space.
    """
    item = load_u8(run + RunState.item)
    offset = load_u8(run + RunState.offset)
    group = load_u8(run + RunState.group)
    ordinal = load_u8(run + RunState.ordinal)
    used = load_u8(run + RunState.rows)
    before_values = load_u8(scratch + KeyScratch.before)
    after_values = load_u8(scratch + KeyScratch.after)
    status = d.DONE
    while item < work_size and status == d.DONE:
        number = load_u4(work + item * 4)
        event = events + number * EventRecord.BYTES
        slot_number = load_u8(event + EventRecord.slot)
        frontier = frontiers + slot_number * FrontierRecord.BYTES
        row_keys = keys + slot_number * RowKeyRecord.BYTES
        op = load_u8(event + EventRecord.op)
        first = data + load_u8(event + EventRecord.images)
        end = data + load_u8(event + EventRecord.end)
        before = data + load_u8(event + EventRecord.before)
        after = data + load_u8(event + EventRecord.after)
        ranks = load_u8(row_keys + RowKeyRecord.ranks)
        count = load_u8(row_keys + RowKeyRecord.count)
        opened = load_u8(frontier + FrontierRecord.open)
        selected = load_u8(frontier + FrontierRecord.selected)
        delivered = load_u8(frontier + FrontierRecord.delivered)
        compared = load_u8(frontier + FrontierRecord.compared)
        if offset == 0:
            if load_u8(event + EventRecord.group) != group:
                group = load_u8(event + EventRecord.group)
                ordinal = rows_before if group == 0 else 0
            offset = load_u8(event + EventRecord.images)
            store_u8(bases + number * 8, used - ordinal)
            if opened:
                store_u8(lengths + number * 8, 0)
        columns, plan, present_before, present_after = open_event(data, event, number, slots, run)
        if present_before <= 0 or present_after <= 0:
            status = d.BAD_WIDTH if present_before < 0 else d.NO_COLUMNS
            break
        position = data + offset
        while position < end:
            offset = position - data
            store_u8(run + RunState.fault, offset)
            if opened == 0:
                position = skip_image(plan, columns, present_before, before, position, end)
                if position and op == r.OP_UPDATE:
                    position = skip_image(plan, columns, present_after, after, position, end)
                if position == 0:
                    status = d.SHORT_IMAGE
                    break
                ordinal += 1
                continue
            if used == capacity:
                status = MORE_FLAGS
                break
            forget_values(before_values, count)
            position = find_key_values(plan, columns, present_before, before, position, end, ranks, before_values)
            inside = 0
            if position:
                inside = lies_inside(row_keys, before_values, scratch, frontier)
            flag = WHOLE if inside else DROPPED
            kind = op
            if op == r.OP_UPDATE and position:
                forget_values(after_values, count)
                position = find_key_values(plan, columns, present_after, after, position, end, ranks, after_values)
                if position:
                    inherit_values(before_values, after_values, count)
                    placed = lies_inside(row_keys, after_values, scratch, frontier)
                    if placed < 0:
                        inside = -1
                    elif inside == 1 and placed == 0:
                        flag = LEAVES
                        kind = r.OP_DELETE
                    elif inside == 0 and placed == 1:
                        flag = ENTERS
                        kind = r.OP_INSERT
                        if present_after < columns:
                            status = PARTIAL_ROW
                    elif compared and end_if_same(
                        plan, columns, present_before, before, present_after, after, data + offset, end
                    ):
                        flag = DROPPED
            if position == 0:
                status = d.SHORT_IMAGE
                break
            if inside < 0:
                status = UNTOLD_KEY
            if status != d.DONE:
                break
            if flag != DROPPED and (selected >> kind) & 1:
                store_u8(lengths + number * 8, position - first)
            store_u1(flags + used, flag if (delivered >> kind) & 1 else DROPPED)
            used += 1
            ordinal += 1
        if status != d.DONE:
            break
        offset = 0
        item += 1
    store_u8(run + RunState.item, item)
    store_u8(run + RunState.offset, offset)
    store_u8(run + RunState.group, group)
    store_u8(run + RunState.ordinal, ordinal)
    store_u8(run + RunState.rows, used)
    return status
