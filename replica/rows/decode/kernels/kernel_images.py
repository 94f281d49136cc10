"""Kernel that finds the values of some columns in an event's row images, so that Python can replace them."""

from __future__ import annotations

from replica.native.compile import kernel
from replica.native.memory import load_u1, load_u8, store_u8
from replica.native.record import Record, word
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_walk import begin_event
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernels.kernel_numbers import short_little_endian


class PieceRecord(Record):
    """One value of a marked column; offsets count from the first image."""

    length = word("offset of the length in front of it")
    value = word("offset of the value")
    end = word("offset after it")
    column = word("number of the column")


GROW = -1


@kernel
def find_values(
    data: int,
    event: int,
    images: int,
    size: int,
    columns: int,
    widths: int,
    marks: int,
    pieces: int,
    capacity: int,
) -> int:
    """Write a PieceRecord for every value, other than NULL, of the columns marked in `marks`.

    `images` and `size` give the event's images. `widths` has int64 per column, see StoredColumns. Return the number of
    pieces, GROW if there is no space for the next, or minus SHORT_IMAGE, BAD_WIDTH or NO_COLUMNS.
    """
    before = data + load_u8(event + EventRecord.before)
    after = data + load_u8(event + EventRecord.after)
    present_before, present_after = begin_event(event, before, after, columns)
    if present_before <= 0 or present_after <= 0:
        return -d.BAD_WIDTH if present_before < 0 else -d.NO_COLUMNS
    update = load_u8(event + EventRecord.op) == r.OP_UPDATE
    end = images + size
    p = images
    count = 0
    image = 0
    while p < end or (update and image & 1):
        second = update and (image & 1) == 1
        bitmap = after if second else before
        present = present_after if second else present_before
        whole = present == columns
        image += 1
        nulls = p
        if end - p < (present + 7) >> 3:
            return -d.SHORT_IMAGE
        p += (present + 7) >> 3
        k = 0
        for c in range(columns):
            if not whole and (load_u1(bitmap + (c >> 3)) >> (c & 7)) & 1 == 0:
                continue
            null = (load_u1(nulls + (k >> 3)) >> (k & 7)) & 1
            k += 1
            if null:
                continue
            start = p
            length = load_u8(widths + c * 8)
            if length < 0:
                prefix = -length
                if end - p < prefix:
                    return -d.SHORT_IMAGE
                length = short_little_endian(p, prefix)
                p += prefix
            if end - p < length:
                return -d.SHORT_IMAGE
            p += length
            if load_u1(marks + c):
                if count == capacity:
                    return GROW
                piece = pieces + count * PieceRecord.BYTES
                store_u8(piece + PieceRecord.length, start - images)
                store_u8(piece + PieceRecord.value, p - length - images)
                store_u8(piece + PieceRecord.end, p - images)
                store_u8(piece + PieceRecord.column, c)
                count += 1
    return count
