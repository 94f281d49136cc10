"""Kernel that finds the values of some columns in an event's row images, so that Python can replace them."""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u4, store_u8
from replica.native.record import Record, word
from replica.rows.decode import records as d
from replica.rows.decode.records import RunState, SlotRecord
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernels.kernel_numbers import short_little_endian
from replica.rows.types.kinds import Kind, PlanRecord

# They use only the widths of the columns, so they work on any table, including types that cannot be decoded.


@helper
def bits_set(bitmap: int, count: int) -> int:
    """Count the set bits among the first `count`."""
    total = 0
    for i in range(count >> 3):
        byte = load_u1(bitmap + i)
        if byte == 255:
            total += 8
        else:
            while byte:
                byte &= byte - 1
                total += 1
    if count & 7:
        byte = load_u1(bitmap + (count >> 3)) & ((1 << (count & 7)) - 1)
        while byte:
            byte &= byte - 1
            total += 1
    return total


@helper
def begin_event(event: int, before: int, after: int, columns: int) -> tuple[int, int]:
    """Return the number of columns in the before and the after image; -1 if the event's width differs from its table
    map.
    """
    if load_u8(event + EventRecord.width) != columns:
        return -1, -1
    present = bits_set(before, columns)
    return present, present if after == before else bits_set(after, columns)


@helper
def open_event(data: int, event: int, number: int, slots: int, run: int) -> tuple[int, int, int, int]:
    """Store the current event in the run state; return its columns, their plan, and the result of `begin_event`."""
    slot = slots + load_u8(event + EventRecord.slot) * SlotRecord.BYTES
    columns = load_u8(slot + SlotRecord.columns)
    store_u8(run + RunState.event, number)
    store_u8(run + RunState.column, -1)
    store_u8(run + RunState.fault, load_u8(event + EventRecord.images))
    before = data + load_u8(event + EventRecord.before)
    after = data + load_u8(event + EventRecord.after)
    present_before, present_after = begin_event(event, before, after, columns)
    return columns, load_u8(slot + SlotRecord.plan_before), present_before, present_after


@helper
def skip_image(plan: int, columns: int, present: int, bitmap: int, position: int, end: int) -> int:
    """Return the address after the row image at `position`, or 0 if the image exceeds the event's end."""
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
        if null:
            continue
        size = load_u8(plan + c * PlanRecord.BYTES + PlanRecord.width)
        if size < 0:
            prefix = -size
            if end - p < prefix:
                return 0
            size = short_little_endian(p, prefix)
            p += prefix
        if end - p < size:
            return 0
        p += size
    return p


@kernel
def count_images(data: int, events: int, work: int, work_size: int, slots: int, counts: int, run: int) -> int:
    """Add the rows of each event of the worklist to its group's count (int64 each). Return DONE, or a fault code."""
    for item in range(work_size):
        number = load_u4(work + item * 4)
        event = events + number * EventRecord.BYTES
        columns, plan, present_before, present_after = open_event(data, event, number, slots, run)
        if present_before <= 0 or present_after <= 0:
            return d.BAD_WIDTH if present_before < 0 else d.NO_COLUMNS
        position = data + load_u8(event + EventRecord.images)
        end = data + load_u8(event + EventRecord.end)
        before = data + load_u8(event + EventRecord.before)
        after = data + load_u8(event + EventRecord.after)
        rows = 0
        while position < end:
            store_u8(run + RunState.fault, position - data)
            position = skip_image(plan, columns, present_before, before, position, end)
            if position and load_u8(event + EventRecord.op) == r.OP_UPDATE:
                position = skip_image(plan, columns, present_after, after, position, end)
            if position == 0:
                return d.SHORT_IMAGE
            rows += 1
        total = counts + load_u8(event + EventRecord.group) * 8
        store_u8(total, load_u8(total) + rows)
    return d.DONE


class PieceRecord(Record):
    """One value of a marked column; offsets count from the first image."""

    length = word("offset of the length in front of it")
    value = word("offset of the value")
    end = word("offset after it")
    column = word("number of the column")


GROW = -1


@kernel
def find_values(
    data: int,
    event: int,
    images: int,
    size: int,
    columns: int,
    widths: int,
    marks: int,
    pieces: int,
    capacity: int,
) -> int:
    """Write a PieceRecord for every value, other than NULL, of the columns marked in `marks`.

    `images` and `size` give the event's images. `widths` has int64 per column, see StoredColumns. Return the number of
    pieces, GROW if there is no space for the next, or minus SHORT_IMAGE, BAD_WIDTH or NO_COLUMNS.
    """
    before = data + load_u8(event + EventRecord.before)
    after = data + load_u8(event + EventRecord.after)
    present_before, present_after = begin_event(event, before, after, columns)
    if present_before <= 0 or present_after <= 0:
        return -d.BAD_WIDTH if present_before < 0 else -d.NO_COLUMNS
    update = load_u8(event + EventRecord.op) == r.OP_UPDATE
    end = images + size
    p = images
    count = 0
    image = 0
    while p < end or (update and image & 1):
        second = update and (image & 1) == 1
        bitmap = after if second else before
        present = present_after if second else present_before
        whole = present == columns
        image += 1
        nulls = p
        if end - p < (present + 7) >> 3:
            return -d.SHORT_IMAGE
        p += (present + 7) >> 3
        k = 0
        for c in range(columns):
            if not whole and (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
                continue
            null = (load_u1(nulls + (k >> 3)) >> (k & 7)) & 1
            k += 1
            if null:
                continue
            start = p
            length = load_u8(widths + c * 8)
            if length < 0:
                prefix = -length
                if end - p < prefix:
                    return -d.SHORT_IMAGE
                length = short_little_endian(p, prefix)
                p += prefix
            if end - p < length:
                return -d.SHORT_IMAGE
            p += length
            if load_u1(marks + c):
                if count == capacity:
                    return GROW
                piece = pieces + count * PieceRecord.BYTES
                store_u8(piece + PieceRecord.length, start - images)
                store_u8(piece + PieceRecord.value, p - length - images)
                store_u8(piece + PieceRecord.end, p - images)
                store_u8(piece + PieceRecord.column, c)
                count += 1
    return count


FNV_OFFSET = 0x2BF29CE484222325
FNV_PRIME = 0x100000001B3


@helper
def same_choice(data: int, event: int, other: int, field: int) -> bool:
    """Return True if two events have one table map and the same bits in the bitmap at `field`."""
    width = load_u8(event + EventRecord.width)
    if load_u8(event + EventRecord.slot) != load_u8(other + EventRecord.slot) or width != load_u8(
        other + EventRecord.width
    ):
        return False
    left = data + load_u8(event + field)
    right = data + load_u8(other + field)
    i = 0
    size = (width + 7) >> 3
    while i < size and load_u1(left + i) == load_u1(right + i):
        i += 1
    return i == size


@kernel
def number_choices(data: int, events: int, count: int, field: int, out: int, table: int, mask: int, firsts: int) -> int:
    """Give each distinct (table map, bitmap) pair of partial events a number; return how many there are.

    `field`: EventRecord.before or .after. `out`: int32 per event, the number of its pair, -1 if the event is whole.
    `firsts`: int32 per pair, the number of its first event. `table`: `mask` + 1 int32 zeros, more than there are
    events.
    """
    found = 0
    for number in range(count):
        event = events + number * EventRecord.BYTES
        if load_u8(event + EventRecord.whole):
            store_u4(out + number * 4, -1)
            continue
        bitmap = data + load_u8(event + field)
        value = FNV_OFFSET ^ load_u8(event + EventRecord.slot)
        for i in range((load_u8(event + EventRecord.width) + 7) >> 3):
            value = (value ^ load_u1(bitmap + i)) * FNV_PRIME
        place = (value ^ (value >> 32)) & mask
        while True:
            entry = load_u4(table + place * 4)
            if entry == 0:
                store_u4(table + place * 4, found + 1)
                store_u4(firsts + found * 4, number)
                store_u4(out + number * 4, found)
                found += 1
                break
            if same_choice(data, event, events + load_u4(firsts + (entry - 1) * 4) * EventRecord.BYTES, field):
                store_u4(out + number * 4, entry - 1)
                break
            place = (place + 1) & mask
    return found


# It compares the columns that the plan reads, including the end of a versioned row's period: closing a row is a
# change. Equal bytes are equal values. A column that the after image lacks was not set, so it is unchanged. A column
# that only the after image has counts as changed, because its old value is unknown.


@helper
def value_extent(plan: int, position: int, end: int) -> tuple[int, int]:
    """Return start and size of a column's value; size -1 if it exceeds the event's end."""
    size = load_u8(plan + PlanRecord.width)
    if size < 0:
        prefix = -size
        if end - position < prefix:
            return position, -1
        size = short_little_endian(position, prefix)
        position += prefix
    return position, size if end - position >= size else -1


@helper
def equal_bytes(first: int, second: int, size: int) -> bool:
    i = 0
    while size - i >= 8:
        if load_u8(first + i) != load_u8(second + i):
            return False
        i += 8
    while i < size:
        if load_u1(first + i) != load_u1(second + i):
            return False
        i += 1
    return True


@helper
def end_if_same(
    plan: int, columns: int, present_before: int, before: int, present_after: int, after: int, position: int, end: int
) -> int:
    """Return the address after both images at `position` if they agree in all columns that are read; else 0.

    Images that exceed the event's end do not agree: the code that reads them reports the fault.
    """
    middle = skip_image(plan, columns, present_before, before, position, end)
    if middle == 0:
        return 0
    p = position + ((present_before + 7) >> 3)
    q = middle + ((present_after + 7) >> 3)
    if q > end:
        return 0
    j = 0
    k = 0
    for c in range(columns):
        has_before = (load_u1(before + (c >> 3)) >> (c & 7)) & 1
        has_after = (load_u1(after + (c >> 3)) >> (c & 7)) & 1
        null_before = 0
        null_after = 0
        if has_before:
            null_before = (load_u1(position + (j >> 3)) >> (j & 7)) & 1
            j += 1
        if has_after:
            null_after = (load_u1(middle + (k >> 3)) >> (k & 7)) & 1
            k += 1
        size = 0
        if has_before and null_before == 0:
            p, size = value_extent(plan, p, end)
        length = 0
        if has_after and null_after == 0:
            q, length = value_extent(plan, q, end)
            if length < 0:
                return 0
        if has_after and load_u8(plan + PlanRecord.kind) != Kind.OPAQUE:
            if has_before == 0 or null_before != null_after or size != length:
                return 0
            if null_after == 0 and not equal_bytes(p, q, size):
                return 0
        p += size
        q += length
        plan += PlanRecord.BYTES
    return q


@kernel
def find_changes(data: int, events: int, work: int, work_size: int, slots: int, lengths: int, run: int) -> int:
    """Store, for each UPDATE event of the worklist, the bytes of images up to its last changed row; 0 if no row
    changed.

    `lengths` has int64 per event of the range, indexed by event number. Return DONE, or a fault code, as
    `count_images`.
    """
    for item in range(work_size):
        number = load_u4(work + item * 4)
        event = events + number * EventRecord.BYTES
        columns, plan, present_before, present_after = open_event(data, event, number, slots, run)
        if present_before <= 0 or present_after <= 0:
            return d.BAD_WIDTH if present_before < 0 else d.NO_COLUMNS
        first = data + load_u8(event + EventRecord.images)
        end = data + load_u8(event + EventRecord.end)
        before = data + load_u8(event + EventRecord.before)
        after = data + load_u8(event + EventRecord.after)
        position = first
        length = 0
        while position < end:
            store_u8(run + RunState.fault, position - data)
            same = end_if_same(plan, columns, present_before, before, present_after, after, position, end)
            if same:
                position = same
                continue
            position = skip_image(plan, columns, present_before, before, position, end)
            if position:
                position = skip_image(plan, columns, present_after, after, position, end)
            if position == 0:
                return d.SHORT_IMAGE
            length = position - first
        store_u8(lengths + number * 8, length)
    return d.DONE
