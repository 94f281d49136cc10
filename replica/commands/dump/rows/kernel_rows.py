"""Kernel that writes rows in VARIANT as text, one call for each batch: JSON objects, SQL statements, or lines for
people.

Templates contain the text that all rows of a table share (names, quotes, commas, types). A table map and operation have
one or two sides to write, and a side has its columns. The kernel walks the columns in table order, skips those that the
image lacks, and writes the values between the templates. In JSON each row starts with its transaction's identity.

A row is written whole or not at all. Without enough space the kernel returns the required sizes, and the next call
starts that row again.
"""

from __future__ import annotations

from replica.commands.dump.rows.kernel_text import JSON, SQL, load_short, put_number, put_time, put_unsigned
from replica.commands.dump.rows.kernel_values import (
    NOTE_DOUBLE,
    NOWHERE,
    SLACK,
    NoteRecord,
    put_bytes,
    put_value,
    value_notes,
    value_room,
)
from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_i1, load_i4, load_u1, load_u4, load_u8, store_u1, store_u8
from replica.native.record import Record, part, word
from replica.rows.scan.records import GroupRecord


class TemplatePiece(Record):
    """Text that is the same in many rows."""

    address = word("address of its bytes")
    size = word("how many")


class ColumnProgram(Record):
    """The form of one column of a side."""

    rank = word("its place among the sorted names of the table")
    style = word("STYLE_*")
    prefix = part(TemplatePiece, "before the value")
    suffix = part(TemplatePiece, "after the value")
    null_suffix = part(TemplatePiece, "after NULL")


class SideProgram(Record):
    """One side of a row: its image, and the text around and between its columns."""

    image = word("0 before, 1 after")
    open = part(TemplatePiece, "before the first column")
    between = part(TemplatePiece, "between two columns")
    close = part(TemplatePiece, "after the last column")
    columns = word("address of its ColumnPrograms")
    count = word("how many")


class RowProgram(Record):
    """The form of the rows of one table and operation."""

    side_count = word("sides in use")
    names = word("columns in the dictionary: an image with as many fields is whole")
    sides = part(SideProgram, "the sides, in the order they are written", count=2)


OPERATIONS = 3
PROGRAMS = 2 * OPERATIONS  # of a table: by operation, and again for rows that are old versions


class BatchRecord(Record):
    """The input of a batch. Words are addresses unless they say otherwise."""

    op = word("int8 a row")
    slot = word("int64 a row")
    group = word("int32 a row")
    ordinal = word("int64 a row")
    history = word("int8 a row: -1 for a table without versions; 0 if no table has any")
    shown = word("int8 a group, 0 where its rows are not asked for; 0: all are")
    before = word("int32 offsets of the VARIANT values of the before images")
    before_data = word("the values")
    after = word("the same of the after images")
    after_data = word("the values")
    programs = word("PROGRAMS addresses a table map")
    groups = word("GroupRecords")
    gtids = word("int64 offsets of GTIDs that are not made of numbers; 0: all are")
    gtids_data = word("the GTIDs")
    starts = word("int64 a group: where it starts in the range")
    origin = word("offset of the range in its file, a number")
    gtid_piece = part(TemplatePiece, "JSON: before the GTID")
    ordinal_piece = part(TemplatePiece, "JSON: before the ordinal")
    time_piece = part(TemplatePiece, "JSON: before the commit time")
    position_piece = part(TemplatePiece, "JSON: before the position")
    current_piece = part(TemplatePiece, "JSON: tells a current row of a versioned table")
    history_piece = part(TemplatePiece, "JSON: tells an old version")


class TextState(Record):
    """State of the kernel between two calls."""

    row = word("the next row")
    used = word("bytes of text so far")
    notes = word("floats noted so far")
    need = word("out: bytes that the text needs at least")
    need_notes = word("out: floats that there has to be room for at least")


DONE = 0
ROOM = 1
NOT_A_VALUE = 2
NO_COLUMNS = 3

HEAD_ROOM = 256


@helper
def put_head(q: int, batch: int, row: int, group: int) -> int:
    """Write the start of a JSON object: the row's transaction, and its place."""
    record = load_u8(batch + BatchRecord.groups) + group * GroupRecord.BYTES
    q = put_bytes(q, batch + BatchRecord.gtid_piece)
    gtids = load_u8(batch + BatchRecord.gtids)
    if gtids:
        start = load_u8(gtids + group * 8)
        size = load_u8(gtids + group * 8 + 8) - start
        copy(q, load_u8(batch + BatchRecord.gtids_data) + start, size)
        q += size
    else:
        q = put_number(q, load_u8(record + GroupRecord.domain))
        store_u1(q, 45)
        q = put_number(q + 1, load_u8(record + GroupRecord.server))
        store_u1(q, 45)
        q = put_unsigned(q + 1, load_u8(record + GroupRecord.sequence))
    q = put_bytes(q, batch + BatchRecord.ordinal_piece)
    q = put_number(q, load_u8(load_u8(batch + BatchRecord.ordinal) + row * 8))
    q = put_bytes(q, batch + BatchRecord.time_piece)
    q = put_time(q, load_u8(record + GroupRecord.timestamp))
    q = put_bytes(q, batch + BatchRecord.position_piece)
    q = put_number(q, load_u8(batch + BatchRecord.origin) + load_u8(load_u8(batch + BatchRecord.starts) + group * 8))
    history = load_u8(batch + BatchRecord.history)
    if history:
        flag = load_i1(history + row)
        if flag >= 0:
            q = put_bytes(q, batch + (BatchRecord.history_piece if flag else BatchRecord.current_piece))
    return q


@kernel
def write_rows(batch: int, rows: int, notation: int, out: int, capacity: int, notes: int, note_capacity: int,
               ends: int, state: int) -> int:  # fmt: skip
    """Write rows from TextState.row on.

    `ends` receives the end of each row's text (int64 a row), `notes` the floats (NoteRecords). Return DONE, ROOM,
    NOT_A_VALUE or NO_COLUMNS.
    """
    row = load_u8(state + TextState.row)
    q = out + load_u8(state + TextState.used)
    limit = out + capacity - SLACK
    note = notes + load_u8(state + TextState.notes) * NoteRecord.BYTES
    note_limit = notes + note_capacity * NoteRecord.BYTES
    ops = load_u8(batch + BatchRecord.op)
    slots = load_u8(batch + BatchRecord.slot)
    groups = load_u8(batch + BatchRecord.group)
    shown = load_u8(batch + BatchRecord.shown)
    history = load_u8(batch + BatchRecord.history)
    programs = load_u8(batch + BatchRecord.programs)
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
        names = load_u8(program + RowProgram.names)
        if notation == JSON:
            need = HEAD_ROOM + load_u8(batch + BatchRecord.position_piece + TemplatePiece.size)
            if limit - q < need:
                status = ROOM
            else:
                q = put_head(q, batch, row, group)
        side = program + RowProgram.sides
        for _ in range(load_u8(program + RowProgram.side_count)):
            if status != DONE:
                break
            image = load_u8(side + SideProgram.image)
            offsets = load_u8(batch + (BatchRecord.after if image else BatchRecord.before))
            value = load_u8(batch + (BatchRecord.after_data if image else BatchRecord.before_data))
            value += load_i4(offsets + row * 4)
            need = load_u8(side + SideProgram.open + TemplatePiece.size)
            need += load_u8(side + SideProgram.close + TemplatePiece.size)
            if limit - q < need:
                status = ROOM
                break
            q = put_bytes(q, side + SideProgram.open)
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
            column = load_u8(side + SideProgram.columns)
            written = 0
            for _ in range(load_u8(side + SideProgram.count)):
                rank = load_u8(column + ColumnProgram.rank)
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
                        column += ColumnProgram.BYTES
                        continue
                    field = low
                p = base + load_short(places + field * offset_size, offset_size)
                style = load_u8(column + ColumnProgram.style)
                room = value_room(p, notation, style)
                if room < 0:
                    status = NOT_A_VALUE
                    break
                need = room + load_u8(side + SideProgram.between + TemplatePiece.size)
                need += load_u8(side + SideProgram.close + TemplatePiece.size)
                need += load_u8(column + ColumnProgram.prefix + TemplatePiece.size)
                need += load_u8(column + ColumnProgram.suffix + TemplatePiece.size)
                need += load_u8(column + ColumnProgram.null_suffix + TemplatePiece.size)
                need_notes = value_notes(p)
                if limit - q < need or note_limit - note < need_notes * NoteRecord.BYTES:
                    status = ROOM
                    break
                if written:
                    q = put_bytes(q, side + SideProgram.between)
                q = put_bytes(q, column + ColumnProgram.prefix)
                q, note = put_value(q, p, notation, style, note, out)
                if q == NOWHERE:
                    status = NOT_A_VALUE
                    break
                q = put_bytes(q, column + (ColumnProgram.suffix if load_u1(p) else ColumnProgram.null_suffix))
                written += 1
                column += ColumnProgram.BYTES
            if status != DONE:
                break
            if written == 0 and notation == SQL and load_u8(side + SideProgram.count):
                status = NO_COLUMNS
                break
            q = put_bytes(q, side + SideProgram.close)
            side += SideProgram.BYTES
        if status != DONE:
            store_u8(state + TextState.need, q - out + need + SLACK)
            store_u8(state + TextState.need_notes, (note - notes) // NoteRecord.BYTES + need_notes)
            q = first
            note = first_note
            break
        store_u8(ends + row * 8, q - out)
        row += 1
    store_u8(state + TextState.row, row)
    store_u8(state + TextState.used, q - out)
    store_u8(state + TextState.notes, (note - notes) // NoteRecord.BYTES)
    return status


@kernel
def put_floats(out: int, used: int, notes: int, count: int, doubles: int, doubles_data: int, floats: int,
               floats_data: int, target: int, ends: int, rows: int) -> int:  # fmt: skip
    """Copy the text to `target` with the texts of the noted floats inserted, and adjust `ends`.

    Return the size in bytes.

    `doubles` and `floats` are addresses of int32 offsets of the two kinds' texts, each in the order of the notes.
    """
    q = target
    done = 0
    row = 0
    for i in range(count):
        note = notes + i * NoteRecord.BYTES
        place = load_u8(note + NoteRecord.place)
        while row < rows and load_u8(ends + row * 8) <= place:
            end = load_u8(ends + row * 8)
            store_u8(ends + row * 8, q - target + end - done)
            row += 1
        copy(q, out + done, place - done)
        q += place - done
        done = place
        if load_u8(note + NoteRecord.kind) == NOTE_DOUBLE:
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
