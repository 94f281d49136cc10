"""Rows as VARIANT -> text, one kernel call a batch: JSON objects, SQL statements, or lines for people.

What is the same for all rows of a table (names, quotes, commas, types) comes ready made in templates: per table map and
operation the sides to write, per side its columns. The kernel walks the columns in table order, leaves out those that
the image does not hold, and writes the values between. In JSON each row starts with its transaction's identity.

A row is written whole or not at all: without room the kernel returns, says what it needs, and starts that row again.
"""

from __future__ import annotations

from replica.dump.kernel_digits import (
    load_short,
    put_number,
    put_time,
    put_unsigned,
)
from replica.dump.kernel_escapes import (
    JSON,
    SQL,
)
from replica.dump.kernel_values import (
    NOTE_BYTES,
    NOTE_DOUBLE,
    NOTE_KIND,
    NOTE_PLACE,
    SLACK,
    put_bytes,
    put_value,
    value_notes,
    value_room,
)
from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_i1, load_i4, load_u1, load_u4, load_u8, store_u1, store_u8
from replica.rows.scan.records import GroupRecord

# A template piece is an address and a size. One column of one side:
COLUMN_RANK = 0  # its place among the sorted names of the table
COLUMN_STYLE = 8
COLUMN_PREFIX = 16
COLUMN_SUFFIX = 32
COLUMN_NULL_SUFFIX = 48  # after NULL
COLUMN_BYTES = 64

# One side of a row: which image, what stands around and between its columns.
SIDE_IMAGE = 0  # 0 before, 1 after
SIDE_OPEN = 8
SIDE_BETWEEN = 24
SIDE_CLOSE = 40
SIDE_COLUMNS = 56
SIDE_COUNT = 64
SIDE_BYTES = 72

# How the rows of one table and operation are written: up to two sides.
PROGRAM_SIDES = 0
PROGRAM_NAMES = 8  # columns in the dictionary: an image with as many fields is whole
PROGRAM_FIRST = 16
PROGRAM_BYTES = 16 + 2 * SIDE_BYTES

OPERATIONS = 3
PROGRAMS = 2 * OPERATIONS  # of a table: by operation, and again for rows that are old versions

# What a batch brings: one address each, in this order, in the kernel's `batch` argument.
BATCH_OP = 0  # int8
BATCH_SLOT = 8  # int64
BATCH_GROUP = 16  # int32
BATCH_ORDINAL = 24  # int64
BATCH_HISTORY = 32  # int8: -1 for a table without versions; address 0 if no table has any
BATCH_SHOWN = 40  # int8 a group, 0 where its rows are not asked for; address 0: all are
BATCH_BEFORE = 48  # int32 offsets and data of the VARIANT values
BATCH_BEFORE_DATA = 56
BATCH_AFTER = 64
BATCH_AFTER_DATA = 72
BATCH_PROGRAMS = 80  # PROGRAMS addresses a table map
BATCH_GROUPS = 88  # GROUP records
BATCH_GTIDS = 96  # int64 offsets and data of GTIDs that are not made of numbers; address 0: all are
BATCH_GTIDS_DATA = 104
BATCH_ORIGIN = 112  # offset of the range in its file
# JSON only, template pieces: what stands before GTID, ordinal, commit time and position, and what tells old versions.
BATCH_GTID_PIECE = 120
BATCH_ORDINAL_PIECE = 136
BATCH_TIME_PIECE = 152
BATCH_POSITION_PIECE = 168
BATCH_CURRENT_PIECE = 184
BATCH_HISTORY_PIECE = 200
BATCH_STARTS = 216  # int64 a group: where it starts in the range
BATCH_WORDS = 28

# What the kernel keeps between two calls.
STATE_ROW = 0
STATE_USED = 8
STATE_NOTES = 16
STATE_NEED = 24  # out: bytes that the text needs at least
STATE_NEED_NOTES = 32
STATE_WORDS = 5

DONE = 0
ROOM = 1
NOT_A_VALUE = 2
NO_COLUMNS = 3

HEAD_ROOM = 256


@helper
def put_head(q: int, batch: int, row: int, group: int) -> int:
    """The start of a JSON object: which transaction the row belongs to, where it stands."""
    record = load_u8(batch + BATCH_GROUPS) + group * GroupRecord.BYTES
    q = put_bytes(q, batch + BATCH_GTID_PIECE)
    gtids = load_u8(batch + BATCH_GTIDS)
    if gtids:
        start = load_u8(gtids + group * 8)
        size = load_u8(gtids + group * 8 + 8) - start
        copy(q, load_u8(batch + BATCH_GTIDS_DATA) + start, size)
        q += size
    else:
        q = put_number(q, load_u8(record + GroupRecord.domain))
        store_u1(q, 45)
        q = put_number(q + 1, load_u8(record + GroupRecord.server))
        store_u1(q, 45)
        q = put_unsigned(q + 1, load_u8(record + GroupRecord.sequence))
    q = put_bytes(q, batch + BATCH_ORDINAL_PIECE)
    q = put_number(q, load_u8(load_u8(batch + BATCH_ORDINAL) + row * 8))
    q = put_bytes(q, batch + BATCH_TIME_PIECE)
    q = put_time(q, load_u8(record + GroupRecord.timestamp))
    q = put_bytes(q, batch + BATCH_POSITION_PIECE)
    q = put_number(q, load_u8(batch + BATCH_ORIGIN) + load_u8(load_u8(batch + BATCH_STARTS) + group * 8))
    history = load_u8(batch + BATCH_HISTORY)
    if history:
        flag = load_i1(history + row)
        if flag >= 0:
            q = put_bytes(q, batch + (BATCH_HISTORY_PIECE if flag else BATCH_CURRENT_PIECE))
    return q


@kernel
def write_rows(batch: int, rows: int, notation: int, out: int, capacity: int, notes: int, note_capacity: int,
               ends: int, state: int) -> int:  # fmt: skip
    """Write rows from STATE_ROW on; `ends` takes the end of each row's text (int64), `notes` the floats."""
    row = load_u8(state + STATE_ROW)
    q = out + load_u8(state + STATE_USED)
    limit = out + capacity - SLACK
    note = notes + load_u8(state + STATE_NOTES) * NOTE_BYTES
    note_limit = notes + note_capacity * NOTE_BYTES
    ops = load_u8(batch + BATCH_OP)
    slots = load_u8(batch + BATCH_SLOT)
    groups = load_u8(batch + BATCH_GROUP)
    shown = load_u8(batch + BATCH_SHOWN)
    history = load_u8(batch + BATCH_HISTORY)
    programs = load_u8(batch + BATCH_PROGRAMS)
    status = DONE
    while row < rows:
        group = load_i4(groups + row * 4)
        if shown and load_u1(shown + group) == 0:
            store_u8(ends + row * 8, q - out)
            row += 1
            continue
        first = q
        first_note = note
        need = 0
        need_notes = 0
        op = load_u1(ops + row)
        if history and load_i1(history + row) == 1:
            op += OPERATIONS
        program = load_u8(programs + (load_u8(slots + row * 8) * PROGRAMS + op) * 8)
        names = load_u8(program + PROGRAM_NAMES)
        if notation == JSON:
            need = HEAD_ROOM + load_u8(batch + BATCH_POSITION_PIECE + 8)
            if limit - q < need:
                status = ROOM
            else:
                q = put_head(q, batch, row, group)
        side = program + PROGRAM_FIRST
        for _ in range(load_u8(program + PROGRAM_SIDES)):
            if status != DONE:
                break
            image = load_u8(side + SIDE_IMAGE)
            offsets = load_u8(batch + (BATCH_AFTER if image else BATCH_BEFORE))
            value = load_u8(batch + (BATCH_AFTER_DATA if image else BATCH_BEFORE_DATA)) + load_i4(offsets + row * 4)
            need = load_u8(side + SIDE_OPEN + 8) + load_u8(side + SIDE_CLOSE + 8)
            if limit - q < need:
                status = ROOM
                break
            q = put_bytes(q, side + SIDE_OPEN)
            head = load_u1(value) >> 2
            offset_size = (head & 3) + 1
            id_size = (head >> 2 & 3) + 1
            if head & 16:
                fields = load_u4(value + 1)
                ids = value + 5
            else:
                fields = load_u1(value + 1)
                ids = value + 2
            places = ids + fields * id_size
            base = places + (fields + 1) * offset_size
            column = load_u8(side + SIDE_COLUMNS)
            written = 0
            for _ in range(load_u8(side + SIDE_COUNT)):
                rank = load_u8(column + COLUMN_RANK)
                field = rank
                if fields != names:
                    low = 0
                    high = fields
                    while low < high:
                        middle = (low + high) >> 1
                        if load_short(ids + middle * id_size, id_size) < rank:
                            low = middle + 1
                        else:
                            high = middle
                    if low == fields or load_short(ids + low * id_size, id_size) != rank:
                        column += COLUMN_BYTES
                        continue
                    field = low
                p = base + load_short(places + field * offset_size, offset_size)
                style = load_u8(column + COLUMN_STYLE)
                room = value_room(p, notation, style)
                if room < 0:
                    status = NOT_A_VALUE
                    break
                pieces = load_u8(side + SIDE_BETWEEN + 8) + load_u8(column + COLUMN_PREFIX + 8)
                pieces += load_u8(column + COLUMN_SUFFIX + 8) + load_u8(column + COLUMN_NULL_SUFFIX + 8)
                need = room + pieces + load_u8(side + SIDE_CLOSE + 8)
                need_notes = value_notes(p)
                if limit - q < need or note_limit - note < need_notes * NOTE_BYTES:
                    status = ROOM
                    break
                if written:
                    q = put_bytes(q, side + SIDE_BETWEEN)
                q = put_bytes(q, column + COLUMN_PREFIX)
                q, note = put_value(q, p, notation, style, note, out)
                q = put_bytes(q, column + (COLUMN_SUFFIX if load_u1(p) else COLUMN_NULL_SUFFIX))
                written += 1
                column += COLUMN_BYTES
            if status != DONE:
                break
            if written == 0 and notation == SQL and load_u8(side + SIDE_COUNT):
                status = NO_COLUMNS
                break
            q = put_bytes(q, side + SIDE_CLOSE)
            side += SIDE_BYTES
        if status != DONE:
            store_u8(state + STATE_NEED, q - out + need + SLACK)
            store_u8(state + STATE_NEED_NOTES, (note - notes) // NOTE_BYTES + need_notes)
            q = first
            note = first_note
            break
        store_u8(ends + row * 8, q - out)
        row += 1
    store_u8(state + STATE_ROW, row)
    store_u8(state + STATE_USED, q - out)
    store_u8(state + STATE_NOTES, (note - notes) // NOTE_BYTES)
    return status


@kernel
def put_floats(out: int, used: int, notes: int, count: int, doubles: int, doubles_data: int, floats: int,
               floats_data: int, target: int, ends: int, rows: int) -> int:  # fmt: skip
    """Copy the text to `target` with the noted floats' texts in their places; `ends` move along. Returns the size.

    `doubles` and `floats`: int32 offsets of the texts of the two kinds, each in the order of the notes.
    """
    q = target
    done = 0
    row = 0
    for i in range(count):
        note = notes + i * NOTE_BYTES
        place = load_u8(note + NOTE_PLACE)
        while row < rows and load_u8(ends + row * 8) <= place:
            end = load_u8(ends + row * 8)
            store_u8(ends + row * 8, q - target + end - done)
            row += 1
        copy(q, out + done, place - done)
        q += place - done
        done = place
        if load_u8(note + NOTE_KIND) == NOTE_DOUBLE:
            start = load_i4(doubles)
            size = load_i4(doubles + 4) - start
            copy(q, doubles_data + start, size)
            doubles += 4
        else:
            start = load_i4(floats)
            size = load_i4(floats + 4) - start
            copy(q, floats_data + start, size)
            floats += 4
        q += size
    while row < rows:
        end = load_u8(ends + row * 8)
        store_u8(ends + row * 8, q - target + end - done)
        row += 1
    copy(q, out + done, used - done)
    return q + used - done - target
