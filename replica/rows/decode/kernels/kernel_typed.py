# ruff: noqa: PLR0911, PLR1714  (one return a fault; numba has no sets)
"""Typed decode kernel: row images of any table to Arrow buffers, one compilation for all tables.

It takes the rows events of a worklist in stream order. Each table map has a SlotRecord, and each column a PlanRecord
with the addresses of its output buffers (records.py). It writes values, int32 offsets and data of strings, validity
bits (set in advance, cleared here for NULL), and the batch's own columns. Both decoders use the row loop in
kernel_rows.py. Columns that a partial image (binlog_row_image=MINIMAL) leaves out are NULL here; only VARIANT
distinguishes absent from NULL.
"""

from __future__ import annotations

from replica.native.compile import helper, inlined, kernel
from replica.native.memory import (
    load_f4,
    load_f8,
    load_i1,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    store_f4,
    store_f8,
    store_u1,
    store_u2,
    store_u4,
    store_u8,
)
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_rows import decode_rows
from replica.rows.decode.records import SlotRecord, TailRecord
from replica.rows.types import kinds as pr
from replica.rows.types.kernels.kernel_charsets import NO_TEXT
from replica.rows.types.kernels.kernel_dates import closed_version, temporal
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
from replica.rows.types.kernels.kernel_text import label, text_room, write_text
from replica.rows.types.kinds import Kind, PlanRecord


@helper
def clear(plan: int, row: int) -> None:
    """Set one column of one row to NULL."""
    valid = load_u8(plan + PlanRecord.valid) + (row >> 3)
    store_u1(valid, load_u1(valid) & ~(1 << (row & 7)))
    tail = load_u8(plan + PlanRecord.tail)
    if tail:
        store_u4(load_u8(plan + PlanRecord.values) + row * 4 + 4, load_u8(tail + TailRecord.end))


@inlined
def write_typed(
    slot: int,
    side: int,  # noqa: ARG001  (the plan has its addresses)
    second: int,
    row: int,
    columns: int,
    bitmap: int,
    present: int,
    position: int,
    end: int,
    history: int,
    run: int,  # noqa: ARG001
    scratch: int,  # noqa: ARG001
) -> tuple[int, int, int, int]:
    """Write one image's values into its columns; see `decode_rows`."""
    plan = load_u8(slot + (SlotRecord.plan_after if second else SlotRecord.plan_before))
    whole = present == columns
    status = d.DONE
    need = 0
    p = position + ((present + 7) >> 3)
    if p > end:
        return d.SHORT_IMAGE, position, -1, 0
    byte = row >> 3
    mask = ~(1 << (row & 7))
    bits = 0
    k = 0
    for c in range(columns):
        if not whole and (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
            if load_u8(plan + PlanRecord.values):
                clear(plan, row)
            plan += PlanRecord.BYTES
            continue
        if k & 7 == 0:
            bits = load_u1(position + (k >> 3))
        k += 1
        null = bits & 1
        bits >>= 1
        if null:
            if load_u8(plan + PlanRecord.values):
                clear(plan, row)
            plan += PlanRecord.BYTES
            continue
        size = load_u8(plan + PlanRecord.width)
        if size < 0:
            prefix = -size
            if end - p < prefix:
                return d.SHORT_IMAGE, p, c, 0
            size = short_little_endian(p, prefix)
            p += prefix
        if end - p < size:
            return d.SHORT_IMAGE, p, c, 0
        kind = load_u8(plan + PlanRecord.kind)
        values = load_u8(plan + PlanRecord.values)

        if kind == Kind.OPAQUE:
            pass
        elif kind == Kind.INT32 or kind == Kind.FLOAT:
            store_u4(values + row * 4, load_u4(p))
        elif kind == Kind.INT64 or kind == Kind.DOUBLE:
            store_u8(values + row * 8, load_u8(p))
        elif kind == Kind.INT8:
            store_u1(values + row, load_u1(p))
        elif kind == Kind.UINT8:
            store_u2(values + row * 2, load_u1(p))
        elif kind == Kind.INT16:
            store_u2(values + row * 2, load_u2(p))
        elif kind == Kind.UINT16:
            store_u4(values + row * 4, load_u2(p))
        elif kind == Kind.INT24:
            store_u4(values + row * 4, load_u2(p) | (load_i1(p + 2) << 16))
        elif kind == Kind.UINT24:
            store_u4(values + row * 4, load_u2(p) | (load_u1(p + 2) << 16))
        elif kind == Kind.UINT32:
            store_u8(values + row * 8, load_u4(p))
        elif kind == Kind.UINT64:
            store_u8(values + row * 16, load_u8(p))
            store_u8(values + row * 16 + 8, 0)
        elif kind == Kind.BIT:
            store_u8(values + row * 8, big_endian(p, size))
        elif kind == Kind.BIT64:
            store_u8(values + row * 16, big_endian(p, size))
            store_u8(values + row * 16 + 8, 0)
        elif kind == Kind.YEAR:
            year = load_u1(p)
            store_u4(values + row * 4, year + 1900 if year else 0)
        elif kind == Kind.DECIMAL:
            if load_u8(plan + PlanRecord.aux) <= 8:
                value = decimal_small(p, load_u8(plan + PlanRecord.a))
                store_u8(values + row * 16, value)
                store_u8(values + row * 16 + 8, value >> 63)
                corrupt = value == CORRUPT
            else:
                high, low, corrupt = decimal_wide(p, load_u8(plan + PlanRecord.a))
                store_u8(values + row * 16, low)
                store_u8(values + row * 16 + 8, high)
            if corrupt:
                return d.BAD_VALUE, p, c, 0
        elif (
            kind == Kind.DATE
            or kind == Kind.DATETIME
            or kind == Kind.TIMESTAMP
            or kind == Kind.TIME
            or kind == Kind.OLD_DATETIME
            or kind == Kind.OLD_TIMESTAMP
            or kind == Kind.OLD_TIME
            or kind == pr.KIND_ROW_END
        ):
            if kind == pr.KIND_ROW_END:
                store_u1(history + row, closed_version(p))
                if values == 0:
                    p += size
                    plan += PlanRecord.BYTES
                    continue
                kind = Kind.TIMESTAMP
            value = temporal(kind, p, load_u8(plan + PlanRecord.a))
            if value <= INVALID:
                if value == NO_BRANCH:
                    return d.UNKNOWN_KIND, p, c, 0
                if load_u8(plan + PlanRecord.b):
                    return d.BAD_DATE, p, c, 0
                valid = load_u8(plan + PlanRecord.valid) + byte
                store_u1(valid, load_u1(valid) & mask)
            elif kind == Kind.DATE:
                store_u4(values + row * 4, value)
            else:
                store_u8(values + row * 8, value)
        elif kind == pr.KIND_ROUNDED_FLOAT:
            store_f4(values + row * 4, rounded(load_f4(p), load_u8(plan + PlanRecord.a)))
        elif kind == pr.KIND_ROUNDED_DOUBLE:
            store_f8(values + row * 8, rounded(load_f8(p), load_u8(plan + PlanRecord.a)))
        elif kind == pr.KIND_WIDENED:
            value = short_little_endian(p, size)
            value -= ((value >> (8 * size - 1)) & load_u8(plan + PlanRecord.b)) << (8 * size)
            width = load_u8(plan + PlanRecord.a)
            if width == 8:
                store_u8(values + row * 8, value)
            elif width == 4:
                store_u4(values + row * 4, value)
            else:
                store_u2(values + row * 2, value)
        else:  # strings, bytes and types that are output as text
            tail = load_u8(plan + PlanRecord.tail)
            if tail == 0:
                return d.UNKNOWN_KIND, p, c, 0
            used = load_u8(tail + TailRecord.end)
            room = load_u8(tail + TailRecord.capacity) - used
            target = load_u8(tail + TailRecord.data) + used
            if kind == Kind.TEXT or kind == Kind.BYTES:
                if size > room:
                    status = d.ROOM
                    need = used + size
                else:
                    copy_short(target, p, size, end - p)
                    used += size
            elif kind == Kind.ENUM:
                table = load_u8(plan + PlanRecord.aux)
                index = short_little_endian(p, size)
                if index > load_u4(table):
                    status = d.BAD_VALUE
                elif index:
                    text, length = label(table, index - 1)
                    if length > room:
                        status = d.ROOM
                        need = used + length
                    else:
                        copy_short(target, text, length, 32)
                        used += length
            else:
                if kind == pr.KIND_ROW_END_TEXT:
                    store_u1(history + row, closed_version(p))
                longest = text_room(kind, p, size, plan)
                if longest > room:
                    status = d.ROOM
                    need = used + longest
                elif longest < 0:
                    status = d.UNKNOWN_KIND if longest == NO_BRANCH else d.BAD_VALUE
                else:
                    length = write_text(kind, target, p, size, plan)
                    if length < 0:
                        status = d.BAD_TEXT if length == NO_TEXT else d.BAD_VALUE
                        if length == NO_BRANCH:
                            status = d.UNKNOWN_KIND
                    used += length
            if status != d.DONE:
                return status, p, tail if status == d.ROOM else c, need
            store_u8(tail + TailRecord.end, used)
            store_u4(values + row * 4 + 4, used)
        p += size
        plan += PlanRecord.BYTES
    missing = load_u8(slot + (SlotRecord.absent_after if second else SlotRecord.absent_before))
    for i in range(load_u8(slot + SlotRecord.absent)):
        clear(missing + i * PlanRecord.BYTES, row)
    return d.DONE, p, -1, 0


@kernel
def decode_typed(
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
    flat: int,
) -> int:
    """Decode into columns of their own types. `flat`: one row per image, all in the columns of the after side."""
    return decode_rows(
        write_typed,
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
        flat,
        0,
    )
