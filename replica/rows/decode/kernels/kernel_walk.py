"""Kernels that walk row images without decoding them, to find the next image and to count rows.

They use only the widths of the columns, so they work on any table, including types that cannot be decoded.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u8
from replica.rows.decode import records as d
from replica.rows.decode.records import RunState, SlotRecord
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernels.kernel_numbers import short_little_endian
from replica.rows.types.plan_record import PlanRecord


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
