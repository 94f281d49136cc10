# ruff: noqa: PLR0911  (one return a fault)
"""VARIANT decode kernel: each row image to one Spark VARIANT object (Spark's common/variant specification).

An object is: header, number of fields, field ids in the order of their names, offsets, values. The ids refer to the
table's sorted dictionary (metadata), made once per table, so the id of a column is the rank of its name. Values are in
wire order, because offsets need not ascend. Columns without a rank, and columns that the image lacks, are absent from
the object; NULL is the variant null. Integers take their smallest width, and invalid dates are null. The row loop
(kernel_rows.py) handles rows, restarts and faults.
"""

from __future__ import annotations

from replica.native.compile import helper, inlined, kernel
from replica.native.memory import copy, load_u1, load_u8, move, store_u1, store_u2, store_u4, store_u8
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_rows import decode_rows
from replica.rows.decode.records import RunState, SideRecord, SlotRecord, TailRecord
from replica.rows.types import kinds as pr
from replica.rows.types.kernels.kernel_charsets import NO_TEXT
from replica.rows.types.kernels.kernel_dates import closed_version
from replica.rows.types.kernels.kernel_numbers import INVALID, NO_BRANCH, short_little_endian
from replica.rows.types.kernels.kernel_variant_values import (
    BEYOND_ASCII,
    FIXED_ROOM,
    NO_ROOM,
    NULL,
    put_beyond_ascii,
    put_value,
    value_room,
)
from replica.rows.types.kinds import Kind, PlanRecord

OBJECT = 2


@helper
def number_bytes(value: int) -> int:
    return 1 if value < 1 << 8 else 2 if value < 1 << 16 else 3 if value < 1 << 24 else 4


@helper
def shown_fields(plan: int, columns: int, shown: int, present: int, bitmap: int) -> int:
    """Count the columns of the image that are output."""
    if shown == columns:
        return present
    fields = 0
    for c in range(columns):
        if (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 and load_u8(
            plan + c * PlanRecord.BYTES + PlanRecord.values
        ) >= 0:
            fields += 1
    return fields


@helper
def value_fault(code: int) -> int:
    """Return the kernel's code for an error of `put_value`."""
    if code == INVALID:
        return d.BAD_DATE
    if code == NO_TEXT:
        return d.BAD_TEXT
    return d.UNKNOWN_KIND if code == NO_BRANCH else d.BAD_VALUE


@inlined
def write_variant(
    slot: int,
    side: int,
    second: int,  # noqa: ARG001  (both sides have the same plan)
    row: int,
    columns: int,
    bitmap: int,
    present: int,
    position: int,
    end: int,
    history: int,
    run: int,
    scratch: int,
) -> tuple[int, int, int, int]:
    """Write one image as an object, and its dictionary; see `decode_rows`."""
    plans = load_u8(slot + SlotRecord.plan_before)
    metadata = load_u8(slot + SlotRecord.metadata)
    metadata_size = load_u8(slot + SlotRecord.metadata_size)
    ranks = load_u8(slot + SlotRecord.ranks)
    shown = load_u8(slot + SlotRecord.shown)
    id_bytes = 1 if shown <= 256 else 2
    fields = shown_fields(plans, columns, shown, present, bitmap)
    whole = present == columns
    guess = max(load_u8(run + RunState.guess), 1)
    tail = load_u8(side + SideRecord.tails)
    used = load_u8(tail + TailRecord.end)
    capacity = load_u8(tail + TailRecord.capacity)
    target = load_u8(tail + TailRecord.data) + used
    limit = target + capacity - used
    count_bytes = 4 if fields > 255 else 1
    fixed = 1 + count_bytes + fields * id_bytes
    # Reserve space for the largest offsets, so that a wrong guess of their width can be corrected in place.
    if target + fixed + (fields + 1) * 4 > limit:
        return d.ROOM, position, tail, used + fixed + (fields + 1) * 4 + FIXED_ROOM
    first = target + fixed + (fields + 1) * guess
    q = first

    p = position + ((present + 7) >> 3)
    if p > end:
        return d.SHORT_IMAGE, position, -1, 0
    plan = plans
    bits = 0
    k = 0
    for c in range(columns):
        if not whole and (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
            plan += PlanRecord.BYTES
            continue
        if k & 7 == 0:
            bits = load_u1(position + (k >> 3))
        k += 1
        null = bits & 1
        bits >>= 1
        size = load_u8(plan + PlanRecord.width)
        kind = load_u8(plan + PlanRecord.kind)
        rank = load_u8(plan + PlanRecord.values)
        if null:
            if rank < 0:
                plan += PlanRecord.BYTES
                continue
            room = 1
            size = 0
        else:
            if size < 0:
                prefix = -size
                if end - p < prefix:
                    return d.SHORT_IMAGE, p, c, 0
                size = short_little_endian(p, prefix)
                p += prefix
            if end - p < size:
                return d.SHORT_IMAGE, p, c, 0
            if kind <= Kind.OPAQUE:
                if kind != Kind.OPAQUE:
                    store_u1(history + row, closed_version(p))
                if rank < 0:
                    p += size
                    plan += PlanRecord.BYTES
                    continue
                kind = Kind.TIMESTAMP if kind == pr.KIND_ROW_END else Kind.TIMESTAMP_TEXT
            room = value_room(kind, p, size, plan)
            if room < 0:
                return (d.UNKNOWN_KIND if room == NO_BRANCH else d.BAD_VALUE), p, c, 0
        if q + room + (fields + 1) * 3 > limit:
            return d.ROOM, p, tail, used + q - target + room + (fields + 1) * 3
        store_u8(scratch + rank * 8, q - first)
        if null:
            store_u1(q, NULL)
            q += 1
        else:
            written = put_value(kind, q, p, size, plan, end - p)
            if written == BEYOND_ASCII:
                most = limit - (fields + 1) * 3
                written = put_beyond_ascii(q, p, size, load_u8(plan + PlanRecord.b), most)
                if written == NO_ROOM:
                    return d.ROOM, p, tail, used + q - target + size * 3 + FIXED_ROOM + (fields + 1) * 3
            if written < 0:
                return value_fault(written), p, c, 0
            q += written
            p += size
        plan += PlanRecord.BYTES
    total = q - first
    width = number_bytes(total)
    if width != guess:
        moved = target + fixed + (fields + 1) * width
        move(moved, first, total)
        first = moved
        store_u8(run + RunState.guess, width)
    store_u1(target, OBJECT | (width - 1) << 2 | (id_bytes - 1) << 4 | (64 if fields > 255 else 0))
    if fields > 255:
        store_u4(target + 1, fields)
    else:
        store_u1(target + 1, fields)
    ids = target + 1 + count_bytes
    offsets = target + fixed
    for i in range(shown):
        if not whole:
            c = load_u8(ranks + i * 8)
            if (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
                continue
        if id_bytes == 1:
            store_u1(ids, i)
        else:
            store_u2(ids, i)
        ids += id_bytes
        value = load_u8(scratch + i * 8)
        if width == 1:
            store_u1(offsets, value)
        elif width == 2:
            store_u2(offsets, value)
        elif width == 3:
            store_u2(offsets, value)
            store_u1(offsets + 2, value >> 16)
        else:
            store_u4(offsets, value)
        offsets += width
    if width == 1:
        store_u1(offsets, total)
    elif width == 2:
        store_u2(offsets, total)
    elif width == 3:
        store_u2(offsets, total)
        store_u1(offsets + 2, total >> 16)
    else:
        store_u4(offsets, total)
    used += first + total - target
    store_u8(tail + TailRecord.end, used)
    store_u4(load_u8(tail + TailRecord.values) + row * 4 + 4, used)

    tail += TailRecord.BYTES
    used = load_u8(tail + TailRecord.end)
    if load_u8(tail + TailRecord.capacity) - used < metadata_size:
        return d.ROOM, p, tail, used + metadata_size
    copy(load_u8(tail + TailRecord.data) + used, metadata, metadata_size)
    used += metadata_size
    store_u8(tail + TailRecord.end, used)
    store_u4(load_u8(tail + TailRecord.values) + row * 4 + 4, used)
    return d.DONE, p, -1, 0


@kernel
def decode_variant(
    data: int,
    events: int,
    work: int,
    work_size: int,
    slots: int,
    run: int,
    meta: int,
    side_before: int,
    side_after: int,
    max_rows: int,
    max_bytes: int,
    scratch: int,
) -> int:
    """Decode into VARIANT: two columns per side, value and metadata. `scratch`: one int64 per column of the widest
    table.
    """
    return decode_rows(
        write_variant,
        data,
        events,
        work,
        work_size,
        slots,
        run,
        meta,
        side_before,
        side_after,
        max_rows,
        max_bytes,
        0,
        scratch,
    )
