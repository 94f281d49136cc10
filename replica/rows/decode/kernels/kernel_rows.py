"""Row loop of both decode kernels: from the worklist's events to their rows, with the batch's own columns.

A decode kernel passes the function that writes one row image; the loop is compiled into each kernel with that function
inlined. Rows of unselected tables are walked, so that ordinals count every row of a transaction.

A row is written whole or not at all. When the rows, the bytes or one column's data are used up, the loop returns before
the unfinished row. The next call begins with that row. Every length is checked against the event's end first; an
invalid one returns a code with the offset. Sharing the loop costs no decoding time, and 5 to 6 CPU seconds of
compiling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.native.compile import helper, inlined
from replica.native.memory import load_u1, load_u4, load_u8, prefetch, store_u1, store_u4, store_u8
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_images import begin_event, end_if_same, skip_image
from replica.rows.decode.records import RowColumns, RunState, SideRecord, SlotRecord, TailRecord
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord

if TYPE_CHECKING:
    from collections.abc import Callable


EVENTS_AHEAD = 4
"""Distance, in rows events, of the event to prefetch: narrow rows decode in a tenth less time."""


@helper
def no_rows(side: int, first: int, row: int) -> None:
    """Set all columns of a side to NULL, without data, from row `first` up to `row`."""
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


@inlined
def decode_rows(
    write_image: Callable[..., tuple[int, int, int, int]],
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
    scratch: int,
) -> int:
    """Decode until the worklist is done or the batch is full; return a code of rows/decode/records.py.

    `write_image` writes an image into row `row` of a side. Its parameters are `slot, side, second, row, columns,
    bitmap, present, position, end, history, run, scratch`; `second` is true for the after side. It returns a code, the
    address after the image or of the fault, and the values for `column` and `need` of RunState.
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
        later = load_u4(work + min(item + EVENTS_AHEAD, stop - 1) * 4)
        images_ahead = data + load_u8(events + later * EventRecord.BYTES + EventRecord.images)
        prefetch(images_ahead)
        prefetch(images_ahead + 64)  # the processor prefetches the rest; more prefetches slow down large rows events
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
        plan = load_u8(slot + SlotRecord.plan_before)
        images = 2 if op == r.OP_UPDATE else 1
        most_rows = images if flat else 1
        position = data + offset

        while position < end:
            if wanted == 0:
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
                same = end_if_same(plan, columns, present_before, before, present_after, after, position, end)
                if same:
                    position = same
                    offset = position - data
                    ordinal += 1
                    continue
            if rows + most_rows > max_rows or consumed >= max_bytes:
                status = d.FULL
                break

            for image in range(images):
                # The flat shape has one set of columns, the after set; an UPDATE fills two of its rows.
                row = rows + image if flat else rows
                second = flat or op == r.OP_INSERT or image == 1
                side = side_after if second else side_before
                filled = filled_after if second else filled_before
                if filled < row:
                    no_rows(side, filled, row)
                if second:
                    filled_after = row + 1
                else:
                    filled_before = row + 1
                bitmap = after if image == 1 else before
                present = present_after if image == 1 else present_before
                status, position, column, need = write_image(
                    slot, side, second, row, columns, bitmap, present, position, end, out_history, run, scratch
                )
                if status != d.DONE:
                    break
            if status != d.DONE:
                fault = position - data
                break

            consumed += position - data - offset + load_u8(slot + SlotRecord.metadata_size)
            offset = position - data
            for image in range(most_rows):
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
        # In the worklist a group ends with its last selected row, which is delivered unless a filter drops it.
        if rows and wanted:
            following = events + load_u4(work + item * 4) * EventRecord.BYTES if item < work_size else 0
            if following == 0 or load_u8(following + EventRecord.group) != group:
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
