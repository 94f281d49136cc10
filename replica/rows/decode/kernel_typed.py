# ruff: noqa: PLR1714  (numba has no sets)
"""The typed decode kernel: row images of any table -> Arrow buffers of the output, one compile for all tables.

In: rows events named by a worklist, in stream order; per table map a SLOT and one PLAN record a column (records.py);
the addresses of all output buffers stand in the plans. Out: values, int32 offsets and data of strings, validity bits
(set beforehand, cleared here for NULL), and the batch's own columns. Rows of tables that are not wanted are walked,
so that the ordinals count every row of a transaction.

A row is written whole or not at all: when the rows, the bytes or one column's data are used up, the kernel returns
before the row it could not finish and begins with it at the next call. Every length is checked against the event's
end first; a wrong one returns a code with the offset.

Columns that a partial image (binlog_row_image=MINIMAL) leaves out are NULL here; only VARIANT can tell absent from
NULL.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import (
    load_i1,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    store_u1,
    store_u2,
    store_u4,
    store_u8,
)
from replica.rows.decode import records as d
from replica.rows.decode.kernel_unchanged import end_if_same
from replica.rows.decode.kernel_walk import begin_event, skip_image
from replica.rows.decode.records import RowColumns, RunState, SideRecord, SlotRecord, TailRecord
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.types import plan_record as pr
from replica.rows.types.kernel_charsets import NO_TEXT
from replica.rows.types.kernel_dates import closed_version, temporal
from replica.rows.types.kernel_numbers import (
    CORRUPT,
    INVALID,
    NO_BRANCH,
    big_endian,
    copy_short,
    decimal_small,
    decimal_wide,
    short_little_endian,
)
from replica.rows.types.kernel_text import label, text_room, write_text
from replica.rows.types.kinds import Kind
from replica.rows.types.plan_record import PlanRecord


@helper
def clear(plan: int, row: int) -> None:
    """Set NULL in one column of one row."""
    valid = load_u8(plan + PlanRecord.valid) + (row >> 3)
    store_u1(valid, load_u1(valid) & ~(1 << (row & 7)))
    tail = load_u8(plan + PlanRecord.tail)
    if tail:
        store_u4(load_u8(plan + PlanRecord.values) + row * 4 + 4, load_u8(tail + TailRecord.end))


@helper
def no_rows(side: int, first: int, row: int) -> None:
    """Set NULL, and no data, in all columns of a side from row `first` up to `row`."""
    tails = load_u8(side + SideRecord.tails)
    for i in range(load_u8(side + SideRecord.tail_count)):
        tail = tails + i * TailRecord.BYTES
        end = load_u8(tail + TailRecord.end)
        values = load_u8(tail + TailRecord.values)
        for k in range(first, row):
            store_u4(values + k * 4 + 4, end)
    valid = load_u8(side + SideRecord.valid)
    stride = load_u8(side + SideRecord.stride)
    for _ in range(load_u8(side + SideRecord.valid_count)):
        k = first
        while k < row:
            byte = valid + (k >> 3)
            if k & 7 == 0 and row - k >= 8:
                store_u1(byte, 0)
                k += 8
            else:
                store_u1(byte, load_u1(byte) & ~(1 << (k & 7)))
                k += 1
        valid += stride


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
    """Decode until the work is done or the batch is full; see DONE and the codes beside it in records.py for what comes
    back.
    """
    item = load_u8(run + RunState.item)
    stop = load_u8(run + RunState.stop)
    offset = load_u8(run + RunState.offset)
    group = load_u8(run + RunState.group)
    ordinal = load_u8(run + RunState.ordinal)
    out_op = load_u8(meta + RowColumns.op)
    out_table = load_u8(meta + RowColumns.table)
    out_group = load_u8(meta + RowColumns.group)
    out_ordinal = load_u8(meta + RowColumns.ordinal)
    out_last = load_u8(meta + RowColumns.last)
    out_event = load_u8(meta + RowColumns.event)
    out_history = load_u8(meta + RowColumns.history)
    rows = 0
    consumed = 0
    filled_before = 0
    filled_after = 0
    status = d.DONE
    fault = 0
    column = -1
    need = 0
    number = 0
    while item < stop and status == d.DONE:
        number = load_u4(work + item * 4)
        event = events + number * EventRecord.BYTES
        slot = slots + load_u8(event + EventRecord.slot) * SlotRecord.BYTES
        op = load_u8(event + EventRecord.op)
        end = data + load_u8(event + EventRecord.end)
        if offset == 0:
            if load_u8(event + EventRecord.group) != group:
                group = load_u8(event + EventRecord.group)
                ordinal = 0
            offset = load_u8(event + EventRecord.images)
        columns = load_u8(slot + SlotRecord.columns)
        before = data + load_u8(event + EventRecord.before)
        after = data + load_u8(event + EventRecord.after)
        present_before, present_after = begin_event(event, before, after, columns)
        if present_before <= 0 or present_after <= 0:
            status = d.BAD_WIDTH if present_before < 0 else d.NO_COLUMNS
            fault = before - data
            break
        wanted = (load_u8(slot + SlotRecord.wanted) >> op) & 1
        compared = op == r.OP_UPDATE and load_u8(slot + SlotRecord.wanted) & r.SKIP_UNCHANGED
        absent = load_u8(slot + SlotRecord.absent)
        images = 2 if op == r.OP_UPDATE else 1
        position = data + offset

        while position < end:
            if wanted == 0:
                plan = load_u8(slot + SlotRecord.plan_before)
                position = skip_image(plan, columns, present_before, before, position, end)
                if images == 2 and position:
                    position = skip_image(plan, columns, present_after, after, position, end)
                if position == 0:
                    status = d.SHORT_IMAGE
                    fault = offset
                    break
                offset = position - data
                ordinal += 1
                continue
            if compared:
                plan = load_u8(slot + SlotRecord.plan_before)
                same = end_if_same(plan, columns, present_before, before, present_after, after, position, end)
                if same:
                    position = same
                    offset = position - data
                    ordinal += 1
                    continue
            if rows + images > max_rows or consumed >= max_bytes:
                status = d.FULL
                break

            row = rows
            for image in range(images):
                # The flat shape has one set of columns, the after set; an UPDATE fills two rows of it.
                second = flat or op == r.OP_INSERT or image == 1
                if flat:
                    row = rows + image
                bitmap = after if image == 1 else before
                present = present_after if image == 1 else present_before
                whole = present == columns
                if second:
                    plan = load_u8(slot + SlotRecord.plan_after)
                    missing = load_u8(slot + SlotRecord.absent_after)
                    if filled_after < row:
                        no_rows(side_after, filled_after, row)
                    filled_after = row + 1
                else:
                    plan = load_u8(slot + SlotRecord.plan_before)
                    missing = load_u8(slot + SlotRecord.absent_before)
                    if filled_before < row:
                        no_rows(side_before, filled_before, row)
                    filled_before = row + 1

                nulls = position
                p = position + ((present + 7) >> 3)
                if p > end:
                    p = nulls
                    status = d.SHORT_IMAGE
                    break
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
                        bits = load_u1(nulls + (k >> 3))
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
                            status = d.SHORT_IMAGE
                            column = c
                            break
                        size = short_little_endian(p, prefix)
                        p += prefix
                    if end - p < size:
                        status = d.SHORT_IMAGE
                        column = c
                        break
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
                            status = d.BAD_VALUE
                            column = c
                            break
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
                            store_u1(out_history + row, closed_version(p))
                            if values == 0:
                                p += size
                                plan += PlanRecord.BYTES
                                continue
                            kind = Kind.TIMESTAMP
                        value = temporal(kind, p, load_u8(plan + PlanRecord.a))
                        if value <= INVALID:
                            if value == NO_BRANCH:
                                status = d.UNKNOWN_KIND
                                column = c
                                break
                            if load_u8(plan + PlanRecord.b):
                                status = d.BAD_DATE
                                column = c
                                break
                            valid = load_u8(plan + PlanRecord.valid) + byte
                            store_u1(valid, load_u1(valid) & mask)
                        elif kind == Kind.DATE:
                            store_u4(values + row * 4, value)
                        else:
                            store_u8(values + row * 8, value)
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
                    else:  # strings, bytes and what is printed as text
                        tail = load_u8(plan + PlanRecord.tail)
                        if tail == 0:
                            status = d.UNKNOWN_KIND
                            column = c
                            break
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
                                store_u1(out_history + row, closed_version(p))
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
                            column = tail if status == d.ROOM else c
                            break
                        store_u8(tail + TailRecord.end, used)
                        store_u4(values + row * 4 + 4, used)
                    p += size
                    plan += PlanRecord.BYTES
                if status != d.DONE:
                    break
                for i in range(absent):
                    clear(missing + i * PlanRecord.BYTES, row)
                position = p
            if status != d.DONE:
                fault = p - data
                break

            consumed += position - data - offset
            offset = position - data
            for image in range(images if flat else 1):
                code = op
                if flat:
                    code = d.FLAT_DELETE if op == r.OP_DELETE else op + image
                store_u1(out_op + rows, code)
                store_u4(out_table + rows * 4, load_u8(slot + SlotRecord.table))
                store_u4(out_group + rows * 4, group)
                store_u8(out_ordinal + rows * 8, ordinal)
                store_u1(out_last + rows, 0)
                store_u4(out_event + rows * 4, number)
                rows += 1
            ordinal += 1
        if status != d.DONE:
            break
        offset = 0
        item += 1
        # The worklist ends for a group with its last selected row. It is delivered, unless a filter leaves it out.
        if (
            rows
            and wanted
            and (
                item == work_size
                or load_u8(events + load_u4(work + item * 4) * EventRecord.BYTES + EventRecord.group) != group
            )
        ):
            store_u1(out_last + rows - 1, 1)

    no_rows(side_after, filled_after, rows)
    if flat == 0:
        no_rows(side_before, filled_before, rows)
    store_u8(run + RunState.item, item)
    store_u8(run + RunState.offset, offset)
    store_u8(run + RunState.group, group)
    store_u8(run + RunState.ordinal, ordinal)
    store_u8(run + RunState.rows, rows)
    store_u8(run + RunState.fault, fault)
    store_u8(run + RunState.column, column)
    store_u8(run + RunState.need, need)
    store_u8(run + RunState.event, number)
    return status
