"""The VARIANT decode kernel: each row image -> one Spark VARIANT object (Spark's common/variant specification).

An object is: header, number of fields, field ids in the order of their names, offsets, values. The ids point into the
table's dictionary (metadata), which is sorted and built once per table, so a column's id is its rank among the names;
the values stand in the order of the wire, because offsets need not grow. Columns that the image does not hold are
absent from the object, and so are columns without a rank; NULL is the variant null. Integers take their smallest
width, dates that no calendar has are null.

Rows, restarts and faults are handled as in kernel_typed.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u1, load_u4, load_u8, move, store_u1, store_u2, store_u4, store_u8
from replica.rows.decode import records as d
from replica.rows.decode.kernel_typed import no_rows
from replica.rows.decode.kernel_unchanged import end_if_same
from replica.rows.decode.kernel_walk import begin_event, skip_image
from replica.rows.decode.records import RowColumns, RunState, SideRecord, SlotRecord, TailRecord
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.types import plan_record as pr
from replica.rows.types.kernel_charsets import NO_TEXT
from replica.rows.types.kernel_dates import closed_version
from replica.rows.types.kernel_numbers import INVALID, NO_BRANCH, short_little_endian
from replica.rows.types.kernel_variant_values import (
    BEYOND_ASCII,
    FIXED_ROOM,
    NO_ROOM,
    NULL,
    put_beyond_ascii,
    put_value,
    value_room,
)
from replica.rows.types.kinds import Kind
from replica.rows.types.plan_record import PlanRecord

OBJECT = 2


@helper
def number_bytes(value: int) -> int:
    return 1 if value < 1 << 8 else 2 if value < 1 << 16 else 3 if value < 1 << 24 else 4


@helper
def shown_fields(plan: int, columns: int, shown: int, present: int, bitmap: int) -> int:
    """Count the columns present that are put out."""
    if shown == columns:
        return present
    fields = 0
    for c in range(columns):
        if (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 and load_u8(
            plan + c * PlanRecord.BYTES + PlanRecord.values
        ) >= 0:
            fields += 1
    return fields


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
    """Decode as `decode_typed` does; each side has two columns, value and metadata. `scratch`: one int64 a column of
    any table.
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
    guess = 1
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
        images = 2 if op == r.OP_UPDATE else 1
        plans = load_u8(slot + SlotRecord.plan_before)
        metadata = load_u8(slot + SlotRecord.metadata)
        metadata_size = load_u8(slot + SlotRecord.metadata_size)
        ranks = load_u8(slot + SlotRecord.ranks)
        shown = load_u8(slot + SlotRecord.shown)
        id_bytes = 1 if shown <= 256 else 2
        fields_before = shown_fields(plans, columns, shown, present_before, before) if wanted else 0
        fields_after = shown_fields(plans, columns, shown, present_after, after) if wanted else 0
        position = data + offset

        while position < end:
            if wanted == 0:
                position = skip_image(plans, columns, present_before, before, position, end)
                if images == 2 and position:
                    position = skip_image(plans, columns, present_after, after, position, end)
                if position == 0:
                    status = d.SHORT_IMAGE
                    fault = offset
                    break
                offset = position - data
                ordinal += 1
                continue
            if compared:
                same = end_if_same(plans, columns, present_before, before, present_after, after, position, end)
                if same:
                    position = same
                    offset = position - data
                    ordinal += 1
                    continue
            if rows == max_rows or consumed >= max_bytes:
                status = d.FULL
                break

            for image in range(images):
                bitmap = after if image == 1 else before
                present = present_after if image == 1 else present_before
                fields = fields_after if image == 1 else fields_before
                whole = present == columns
                if op == r.OP_INSERT or image == 1:
                    if filled_after < rows:
                        no_rows(side_after, filled_after, rows)
                    filled_after = rows + 1
                    tail = load_u8(side_after + SideRecord.tails)
                else:
                    if filled_before < rows:
                        no_rows(side_before, filled_before, rows)
                    filled_before = rows + 1
                    tail = load_u8(side_before + SideRecord.tails)
                used = load_u8(tail + TailRecord.end)
                capacity = load_u8(tail + TailRecord.capacity)
                target = load_u8(tail + TailRecord.data) + used
                limit = target + capacity - used
                count_bytes = 4 if fields > 255 else 1
                fixed = 1 + count_bytes + fields * id_bytes
                # Room for the largest offsets, so that the guess can be corrected in place.
                if target + fixed + (fields + 1) * 4 > limit:
                    status = d.ROOM
                    column = tail
                    need = used + fixed + (fields + 1) * 4 + FIXED_ROOM
                    break
                first = target + fixed + (fields + 1) * guess
                q = first

                nulls = position
                p = position + ((present + 7) >> 3)
                if p > end:
                    p = nulls
                    status = d.SHORT_IMAGE
                    break
                plan = plans
                bits = 0
                k = 0
                for c in range(columns):
                    if not whole and (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
                        plan += PlanRecord.BYTES
                        continue
                    if k & 7 == 0:
                        bits = load_u1(nulls + (k >> 3))
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
                                status = d.SHORT_IMAGE
                                column = c
                                break
                            size = short_little_endian(p, prefix)
                            p += prefix
                        if end - p < size:
                            status = d.SHORT_IMAGE
                            column = c
                            break
                        if kind <= Kind.OPAQUE:
                            if kind != Kind.OPAQUE:
                                store_u1(out_history + rows, closed_version(p))
                            if rank < 0:
                                p += size
                                plan += PlanRecord.BYTES
                                continue
                            kind = Kind.TIMESTAMP if kind == pr.KIND_ROW_END else Kind.TIMESTAMP_TEXT
                        room = value_room(kind, p, size, plan)
                        if room < 0:
                            status = d.UNKNOWN_KIND if room == NO_BRANCH else d.BAD_VALUE
                            column = c
                            break
                    if q + room + (fields + 1) * 3 > limit:
                        status = d.ROOM
                        column = tail
                        need = used + q - target + room + (fields + 1) * 3
                        break
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
                                status = d.ROOM
                                column = tail
                                need = used + q - target + size * 3 + FIXED_ROOM + (fields + 1) * 3
                                break
                        if written < 0:
                            status = d.BAD_VALUE
                            if written == INVALID:
                                status = d.BAD_DATE
                            elif written == NO_TEXT:
                                status = d.BAD_TEXT
                            elif written == NO_BRANCH:
                                status = d.UNKNOWN_KIND
                            column = c
                            break
                        q += written
                        p += size
                    plan += PlanRecord.BYTES
                if status != d.DONE:
                    break
                total = q - first
                width = number_bytes(total)
                if width != guess:
                    moved = target + fixed + (fields + 1) * width
                    move(moved, first, total)
                    first = moved
                    guess = width
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
                store_u4(load_u8(tail + TailRecord.values) + rows * 4 + 4, used)

                tail += TailRecord.BYTES
                used = load_u8(tail + TailRecord.end)
                if load_u8(tail + TailRecord.capacity) - used < metadata_size:
                    status = d.ROOM
                    column = tail
                    need = used + metadata_size
                    break
                copy(load_u8(tail + TailRecord.data) + used, metadata, metadata_size)
                used += metadata_size
                store_u8(tail + TailRecord.end, used)
                store_u4(load_u8(tail + TailRecord.values) + rows * 4 + 4, used)
                position = p
            if status != d.DONE:
                fault = p - data
                break

            consumed += position - data - offset + metadata_size
            offset = position - data
            store_u1(out_op + rows, op)
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
