"""Kernel that turns rows of a prepared SELECT (binary protocol) into row images of the binlog and key bytes.

One call processes the rows of a run. A row is written whole or not at all. If the space ends, the kernel returns before
the unfinished row and starts with it at the next call. Every length is checked against the row's end first, and every
value against its column. tests/kit/snapshot/plain_result_rows.py does the same in plain Python. The values are
written by kernel_result_values.py.

Source: Protocol_binary in sql/protocol.cc, pack_row in sql/rpl_record.cc.
"""

from __future__ import annotations

from replica.native.compile import helper, inlined, kernel
from replica.native.memory import load_u1, load_u4, load_u8, store_u1, store_u8
from replica.rows.types.kernels.kernel_keys import SPOT_BYTES, key_room, write_key
from replica.rows.types.kinds import Transcoding
from replica.snapshot.rows.kernel_result_values import (
    put_counted,
    put_date,
    put_datetime,
    put_decimal,
    put_number,
    put_time,
    put_year,
)
from replica.snapshot.rows.result_plan import BlockState, ResultColumnRecord, RowOutcome


@helper
def comes_after(key: int, size: int, before: int, size_before: int) -> bool:
    """Return True if a key's bytes sort after those of another key and differ from them."""
    for i in range(min(size, size_before)):
        byte = load_u1(key + i)
        other = load_u1(before + i)
        if byte != other:
            return byte > other
    return size > size_before


@inlined
def put_image(columns: int, count: int, row: int, stop: int, end: int, out: int, spots: int) -> tuple[int, int, int]:
    """Write the image of one row; return the outcome, the address after the image, and the column of an error."""
    inside = (count + 9) >> 3
    nulls = row + 1
    if stop - nulls < inside:
        return RowOutcome.SHORT, out, -1
    if load_u1(row) != 0:
        return RowOutcome.NO_ROW, out, -1
    # The result's NULL bits begin at the third bit, the image's at the first; the server sets the unused bits.
    bytes_ = (count + 7) >> 3
    for i in range(bytes_):
        bits = load_u1(nulls + i) >> 2
        if i + 1 < inside:
            bits |= load_u1(nulls + i + 1) << 6
        store_u1(out + i, bits)
    if count & 7:
        store_u1(out + bytes_ - 1, load_u1(out + bytes_ - 1) | 0xFF << (count & 7))
    p = nulls + inside
    q = out + bytes_
    for c in range(count):
        record = columns + c * ResultColumnRecord.BYTES
        key = load_u8(record + ResultColumnRecord.key)
        if load_u1(out + (c >> 3)) >> (c & 7) & 1:
            if key >= 0:
                return RowOutcome.NULL_KEY, out, c
            continue
        begin = q
        transcoding = load_u8(record + ResultColumnRecord.transcoding)
        if transcoding == Transcoding.NUMBER:
            outcome, p, q = put_number(record, p, stop, q)
        elif transcoding >= Transcoding.COUNTED:
            outcome, p, q = put_counted(record, p, stop, end, q)
        elif transcoding == Transcoding.DECIMAL:
            outcome, p, q = put_decimal(record, p, stop, q)
        elif transcoding == Transcoding.DATE:
            outcome, p, q = put_date(p, stop, q)
        elif transcoding == Transcoding.TIME:
            outcome, p, q = put_time(record, p, stop, q)
        elif transcoding == Transcoding.YEAR:
            outcome, p, q = put_year(p, stop, q)
        else:
            outcome, p, q = put_datetime(record, p, stop, q)
        if outcome != RowOutcome.DONE:
            return outcome, out, c
        if key >= 0:
            begin -= min(load_u8(record + ResultColumnRecord.width), 0)
            store_u8(spots + key * SPOT_BYTES, begin)
            store_u8(spots + key * SPOT_BYTES + 8, q - begin)
    return RowOutcome.DONE if p == stop else RowOutcome.LONG, q, -1


@kernel
def transcode_rows(
    data: int,
    end: int,
    joined: int,
    columns: int,
    count: int,
    widest: int,
    parts: int,
    part_count: int,
    ordered: int,
    spots: int,
    state: int,
) -> int:
    """Append the rows of a run, from `position`, to a block; return a RowOutcome.

    `data`: memory of the run; `end`: offset of its end. `widest`: bytes by which an image may be longer than its row.
    `parts`: records of the key, none for a table without a key. `ordered`: each key must sort after the previous one.
    """
    images = load_u8(state + BlockState.images)
    used = load_u8(state + BlockState.images_used)
    room = load_u8(state + BlockState.images_room)
    ends = load_u8(state + BlockState.ends)
    key_ends = load_u8(state + BlockState.key_ends)
    rows = load_u8(state + BlockState.rows)
    rows_room = load_u8(state + BlockState.rows_room)
    keys = load_u8(state + BlockState.keys)
    keys_used = load_u8(state + BlockState.keys_used)
    keys_room = load_u8(state + BlockState.keys_room)
    last = data + end
    position = data + load_u8(state + BlockState.position)
    outcome = RowOutcome.DONE + 0
    column = -1
    need = 0
    while position < last:
        row = position
        stop = last
        if joined == 0:
            if last - position < 4:
                outcome = RowOutcome.TORN + 0
                break
            row = position + 4
            stop = row + (load_u4(position) & 0xFFFFFF)
            if stop > last:
                outcome = RowOutcome.TORN + 0
                break
        if used + (stop - row) + widest > room:
            outcome = RowOutcome.GROW_IMAGES + 0
            need = (stop - row) + widest
            break
        if rows == rows_room:
            outcome = RowOutcome.GROW_ROWS + 0
            break
        outcome, behind, column = put_image(columns, count, row, stop, last, images + used, spots)
        if outcome != RowOutcome.DONE:
            break
        if part_count:
            need = key_room(parts, part_count, spots)
            if keys_used + need > keys_room:
                outcome = RowOutcome.GROW_KEYS + 0
                break
            key = keys + keys_used
            size = write_key(parts, part_count, spots, key) - key
            if ordered and rows:
                before = load_u8(key_ends + (rows - 2) * 8) if rows > 1 else 0
                if not comes_after(key, size, keys + before, keys_used - before):
                    outcome = RowOutcome.OUT_OF_ORDER + 0
                    break
            keys_used += size
        used = behind - images
        store_u8(ends + rows * 8, used)
        store_u8(key_ends + rows * 8, keys_used)
        rows += 1
        position = stop
        if joined:
            break
    store_u8(state + BlockState.position, position - data)
    store_u8(state + BlockState.images_used, used)
    store_u8(state + BlockState.rows, rows)
    store_u8(state + BlockState.keys_used, keys_used)
    store_u8(state + BlockState.need, need)
    store_u8(state + BlockState.column, column)
    return outcome
