"""Kernel that splits row changes into halves: the image that a change removes and the image that it puts.

An update removes its before image and puts its after image. An insert puts, a delete removes. The caller owns all
memory. `kernel_key_states.py` computes the state of each key from the halves.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u4, load_u8, store_u8
from replica.native.record import Record, word
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_frontier import (
    KeyValueRecord,
    RowKeyRecord,
    find_key_values,
    forget_values,
    inherit_values,
    most_key_bytes,
)
from replica.rows.decode.kernels.kernel_images import bits_set, open_event
from replica.rows.decode.records import RunState
from replica.rows.scan import records as r
from replica.rows.scan.kernels.kernel_rows_events import same_bytes
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernels.kernel_keys import write_key
from replica.snapshot.images.kernel_partial_rows import (
    IS_WHOLE,
    KEEPS,
    PUTS,
    HalfRecord,
    bits_in_both,
    is_past,
    merge_image,
    project_image,
    row_end_column,
)


class HalfTotals(Record):
    """Memory that the halves of a work list need."""

    halves = word("how many")
    keys = word("bytes of keys, and of images that lack columns, at most; in the second pass: those that are used")


@helper
def write_half(
    totals: int,
    halves: int,
    keys: int,
    parts: int,
    count: int,
    values: int,
    place: int,
    image: int,
    size: int,
    slot: int,
    flags: int,
    plan: int,
    columns: int,
    present: int,
    bitmap: int,
    base: int,
    wanted: int,
) -> None:
    """Count one half, and write it if `halves` is not 0.

    `base`: the full before image directly before this image, from which missing columns are taken; 0 for none.
    `wanted`: bitmap of the columns to write, 0 for all.
    """
    number = load_u8(totals + HalfTotals.halves)
    used = load_u8(totals + HalfTotals.keys)
    room = most_key_bytes(parts, count, values)
    store_u8(totals + HalfTotals.halves, number + 1)
    told = (columns + 7) >> 3
    asked = columns
    some = present
    if wanted:
        base = 0
        asked = bits_set(wanted, columns)
        some = bits_in_both(bitmap, wanted, columns)
    if halves == 0:
        more = 0 if present == columns == asked else size + (image - base if base else told)
        store_u8(totals + HalfTotals.keys, used + max(room, 0) + more)
        return
    half = halves + number * HalfRecord.BYTES
    target = keys + used
    if room >= 0:
        target = write_key(parts, count, values, keys + used)
        room = target - keys - used
    if some == asked:
        flags |= IS_WHOLE
        if some != present:
            size = project_image(plan, columns, bitmap, present, image, wanted, some, target) - target
            image = target
            target += size
    elif base:
        size = merge_image(plan, columns, base, bitmap, present, image, target) - target
        image = target
        target += size
        flags |= IS_WHOLE
    else:
        copy(target, bitmap, told)
        copy(target + told, image, size)
        size += told
        image = target
        target += size
    store_u8(totals + HalfTotals.keys, target - keys)
    store_u8(half + HalfRecord.place, place)
    store_u8(half + HalfRecord.key, keys + used)
    store_u8(half + HalfRecord.key_size, room)
    store_u8(half + HalfRecord.image, image)
    store_u8(half + HalfRecord.size, size)
    store_u8(half + HalfRecord.slot, slot)
    store_u8(half + HalfRecord.flags, flags)


@helper
def same_values(left: int, right: int, count: int) -> bool:
    """Return True if all values of two keys are known and have the same bytes."""
    for i in range(count):
        one = left + i * KeyValueRecord.BYTES
        two = right + i * KeyValueRecord.BYTES
        size = load_u8(one + KeyValueRecord.size)
        if size < 0 or size != load_u8(two + KeyValueRecord.size):
            return False
        if not same_bytes(load_u8(one + KeyValueRecord.start), load_u8(two + KeyValueRecord.start), size):
            return False
    return True


@kernel
def find_row_halves(
    data: int,
    events: int,
    work: int,
    work_size: int,
    slots: int,
    row_keys: int,
    wants: int,
    places: int,
    before_values: int,
    after_values: int,
    halves: int,
    keys: int,
    totals: int,
    run: int,
) -> int:
    """Write the halves of all rows in these events and count them; with `halves` 0, only compute the needed memory.

    Return DONE, or an error code with its fault. History rows of a system-versioned table are skipped: they have the
    keys of current rows and are not part of the table.

    `wants`: int64 per table map, address of the bitmap of columns to write, 0 for all. `places`: int64 per event group
    of the range. `before_values`, `after_values`: KeyValueRecords for the longest key.
    """
    store_u8(totals + HalfTotals.halves, 0)
    store_u8(totals + HalfTotals.keys, 0)
    for item in range(work_size):
        number = load_u4(work + item * 4)
        event = events + number * EventRecord.BYTES
        slot_number = load_u8(event + EventRecord.slot)
        row_key = row_keys + slot_number * RowKeyRecord.BYTES
        ranks = load_u8(row_key + RowKeyRecord.ranks)
        parts = load_u8(row_key + RowKeyRecord.parts)
        count = load_u8(row_key + RowKeyRecord.count)
        wanted = load_u8(wants + slot_number * 8)
        place = load_u8(places + load_u8(event + EventRecord.group) * 8)
        op = load_u8(event + EventRecord.op)
        position = data + load_u8(event + EventRecord.images)
        end = data + load_u8(event + EventRecord.end)
        before = data + load_u8(event + EventRecord.before)
        after = data + load_u8(event + EventRecord.after)
        columns, plan, present_before, present_after = open_event(data, event, number, slots, run)
        if present_before <= 0 or present_after <= 0:
            return d.BAD_WIDTH if present_before < 0 else d.NO_COLUMNS
        row_end = row_end_column(plan, columns)
        past = 0
        while position < end:
            store_u8(run + RunState.fault, position - data)
            forget_values(before_values, count)
            middle = find_key_values(plan, columns, present_before, before, position, end, ranks, before_values)
            if middle == 0:
                return d.SHORT_IMAGE
            first = position
            if row_end >= 0:
                past = is_past(plan, row_end, before, present_before, position, 0)
            if past == 0:
                write_half(
                    totals,
                    halves,
                    keys,
                    parts,
                    count,
                    before_values,
                    place,
                    position,
                    middle - position,
                    slot_number,
                    PUTS if op == r.OP_INSERT else 0,
                    plan,
                    columns,
                    present_before,
                    before,
                    0,
                    wanted,
                )
            position = middle
            if op == r.OP_UPDATE:
                forget_values(after_values, count)
                middle = find_key_values(plan, columns, present_after, after, position, end, ranks, after_values)
                if middle == 0:
                    return d.SHORT_IMAGE
                inherit_values(before_values, after_values, count)
                kept = past == 0 and same_values(before_values, after_values, count)
                if row_end >= 0:
                    past = is_past(plan, row_end, after, present_after, position, past)
                if past == 0:
                    write_half(
                        totals,
                        halves,
                        keys,
                        parts,
                        count,
                        after_values,
                        place,
                        position,
                        middle - position,
                        slot_number,
                        PUTS | (KEEPS if kept else 0),
                        plan,
                        columns,
                        present_after,
                        after,
                        first if present_before == columns else 0,
                        wanted,
                    )
                position = middle
    return d.DONE
