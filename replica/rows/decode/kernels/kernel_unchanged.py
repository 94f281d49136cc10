"""Kernel that finds unchanged updates: it compares the two images of a row as bytes, column by column.

It compares the columns that the plan reads, including the end of a versioned row's period: closing a row is a change.
Equal bytes are equal values. A column that the after image lacks was not set, so it is unchanged. A column that only
the after image has counts as changed, because its old value is unknown.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u8
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_walk import open_event, skip_image
from replica.rows.decode.records import RunState
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernels.kernel_numbers import short_little_endian
from replica.rows.types.kinds import Kind
from replica.rows.types.plan_record import PlanRecord


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
