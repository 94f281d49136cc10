"""Kernel that turns rows of a prepared SELECT (binary protocol) into row images of the binlog and key bytes.

One call processes the rows of a run. A row is written whole or not at all. If the space ends, the kernel returns before
the unfinished row and starts with it at the next call. Every length is checked against the row's end first, and every
value against its column. tests/kit/snapshot/plain_result_rows.py does the same in plain Python.

The `put_*` helpers write numbers, text and bytes in the packed form of row images. Each takes a column's record, the
address of the value, the end of its row, and the target address. It returns a RowOutcome and the addresses after the
value in source and target.

Source: Protocol_binary in sql/protocol.cc, Field_*::pack in sql/field.cc, pack_row in sql/rpl_record.cc.
"""

# ruff: noqa: PLR0911  (one return a form)

from __future__ import annotations

from replica.native.compile import helper, inlined, kernel
from replica.native.memory import (
    copy,
    load_i1,
    load_i2,
    load_i4,
    load_u1,
    load_u2,
    load_u4,
    load_u8,
    store_u1,
    store_u2,
    store_u4,
    store_u8,
)
from replica.rows.types.kernels.kernel_dates import DATETIME_OFFSET, MICROS, TIME_OFFSET, days
from replica.rows.types.kernels.kernel_keys import SPOT_BYTES, key_room, store_big, write_key
from replica.rows.types.kernels.kernel_numbers import INVALID, copy_short
from replica.rows.types.kinds import Transcoding
from replica.snapshot.rows.result_plan import BlockState, ResultColumnRecord, RowOutcome

DECIMAL_TEXT = 81  # maximum length: sign, leading zeros, 65 digits and point


@helper
def counted_length(p: int, stop: int) -> tuple[int, int]:
    """Return a length-encoded integer and the address after it; the integer is -1 if there is none."""
    if p >= stop:
        return -1, p
    first = load_u1(p)
    if first < 251:
        return first, p + 1
    if first == 252 and stop - p >= 3:
        return load_u2(p + 1), p + 3
    if first == 253 and stop - p >= 4:
        return load_u2(p + 1) | load_u1(p + 3) << 16, p + 4
    if first == 254 and stop - p >= 9:
        return load_u8(p + 1), p + 9  # a value above 63 bits becomes negative
    return -1, p


@helper
def store_little(q: int, value: int, width: int) -> None:
    """Store the low `width` bytes of a number in little-endian order."""
    if width == 4:
        store_u4(q, value)
    elif width == 8:
        store_u8(q, value)
    elif width == 1:
        store_u1(q, value)
    else:
        store_u2(q, value)
        if width == 3:
            store_u1(q + 2, value >> 16)


@helper
def put_number(record: int, p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write the low bytes of a fixed-width number; return the outcome and the addresses after it on both sides."""
    came = load_u8(record + ResultColumnRecord.came)
    width = load_u8(record + ResultColumnRecord.width)
    if stop - p < came:
        return RowOutcome.SHORT, p, q
    if came == 4:
        value = load_i4(p)
    elif came == 8:
        value = load_u8(p)
    elif came == 2:
        value = load_i2(p)
    else:
        value = load_i1(p)
    if width < came:
        high = value >> (8 * width)
        if high != 0 and high != -1:  # noqa: PLR1714  (numba has no sets)
            return RowOutcome.NO_VALUE, p, q
    store_little(q, value, width)
    return RowOutcome.DONE, p + came, q + width


@helper
def put_year(p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write YEAR: 0, or the years since 1900."""
    if stop - p < 2:
        return RowOutcome.SHORT, p, q
    year = load_u2(p)
    if year:
        year -= 1900
        if year < 1 or year > 255:
            return RowOutcome.NO_VALUE, p, q
    store_u1(q, year)
    return RowOutcome.DONE, p + 2, q + 1


@helper
def digits_of(p: int, count: int) -> int:
    """Return the number in `count` digits of text, or -1 if a character is no digit."""
    value = 0
    for i in range(count):
        digit = load_u1(p + i) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@helper
def group_bytes(digits: int) -> int:
    """Return the bytes of a group of 0 to 9 digits in a packed DECIMAL."""
    return (digits + 1) >> 1 if digits < 9 else 4


@helper
def put_decimal(record: int, p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write the text of a DECIMAL as packed digits, see kernel_numbers.py."""
    size, text = counted_length(p, stop)
    if size < 0 or size > stop - text:
        return RowOutcome.SHORT, p, q
    whole = load_u8(record + ResultColumnRecord.most)
    scale = load_u8(record + ResultColumnRecord.scale)
    behind = text + size
    flip = 0
    if size and load_u1(text) == 45:
        flip = -1
        text += 1
    point = behind - scale
    if scale:
        if point - 1 < text or load_u1(point - 1) != 46:
            return RowOutcome.NO_VALUE, p, q
        point -= 1
    if point <= text or size > DECIMAL_TEXT:
        return RowOutcome.NO_VALUE, p, q
    while point - text > whole and load_u1(text) == 48:
        text += 1
    have = point - text
    if have > whole:
        return RowOutcome.NO_VALUE, p, q
    out = q
    left = whole  # digits still to write; leading digits above `have` are zeros
    while left:
        digits = left % 9
        if digits == 0:
            digits = 9
        after = left - digits
        take = min(have - after, digits)
        value = 0
        if take > 0:
            value = digits_of(text, take)
            if value < 0:
                return RowOutcome.NO_VALUE, p, q
            text += take
            have -= take
        store_big(out, value ^ flip, group_bytes(digits))
        out += group_bytes(digits)
        left = after
    text = behind - scale
    left = scale
    while left:
        digits = min(left, 9)
        value = digits_of(text, digits)
        if value < 0:
            return RowOutcome.NO_VALUE, p, q
        text += digits
        left -= digits
        store_big(out, value ^ flip, group_bytes(digits))
        out += group_bytes(digits)
    store_u1(q, load_u1(q) ^ 0x80)
    return RowOutcome.DONE, behind, out


@helper
def put_counted(record: int, p: int, stop: int, end: int, q: int) -> tuple[int, int, int]:
    """Write bytes with their length prefix, or BIT, whose length is fixed; memory up to `end` may be read."""
    size, value = counted_length(p, stop)
    if size < 0 or size > stop - value:
        return RowOutcome.SHORT, p, q
    behind = value + size
    width = load_u8(record + ResultColumnRecord.width)
    transcoding = load_u8(record + ResultColumnRecord.transcoding)
    if transcoding == Transcoding.TRIMMED:
        while size and load_u1(value + size - 1) == 0:
            size -= 1
    elif transcoding == Transcoding.BITS:
        if size != width:
            return RowOutcome.NO_VALUE, p, q
        copy(q, value, size)
        return RowOutcome.DONE, behind, q + size
    if size > load_u8(record + ResultColumnRecord.most):
        return RowOutcome.TOO_LONG, p, q
    store_little(q, size, -width)
    q -= width
    copy_short(q, value, size, end - value)
    return RowOutcome.DONE, behind, q + size


# Each helper has the same signature: a record, the value, the end of its row, and the
# target. It returns a RowOutcome and the addresses after the value in source and target.
# tests/kit/snapshot/plain_result_rows.py does the same in plain Python.
#
# Source: Protocol_binary in sql/protocol.cc, Field_*::pack in sql/field.cc.


LAST_HOUR = 838
LAST_SECOND = 0xFFFFFFFF


@helper
def put_fraction(out: int, micros: int, size: int) -> None:
    """Write a fraction of a second: 1 byte of hundredths, 2 bytes of ten-thousandths, or 3 bytes of microseconds."""
    if size == 1:
        store_u1(out, micros // 10_000)
    elif size == 2:
        store_big(out, micros // 100, 2)
    elif size == 3:
        store_big(out, micros, 3)


@helper
def is_day(p: int) -> bool:
    """Return True if the server can store the year, month and day at `p`; month and day may be zero."""
    return load_u2(p) <= 9999 and load_u1(p + 2) <= 12 and load_u1(p + 3) <= 31


@helper
def put_date(p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write DATE from its parts; a value without parts is the zero date."""
    if p >= stop or load_u1(p) > stop - p - 1:
        return RowOutcome.SHORT, p, q
    size = load_u1(p)
    packed = 0
    if size:
        if size != 4 or not is_day(p + 1):
            return RowOutcome.NO_VALUE, p, q
        packed = load_u2(p + 1) << 9 | load_u1(p + 3) << 5 | load_u1(p + 4)
    store_u2(q, packed)
    store_u1(q + 2, packed >> 16)
    return RowOutcome.DONE, p + 1 + size, q + 3


@helper
def clock_of(p: int, last_hour: int) -> int:
    """Return hour, minute and second as h << 12 | m << 6 | s, or -1 for an invalid time."""
    hour = load_u1(p)
    minute = load_u1(p + 1)
    second = load_u1(p + 2)
    return hour << 12 | minute << 6 | second if hour <= last_hour and minute < 60 and second < 60 else -1


@helper
def put_datetime(record: int, p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write DATETIME or TIMESTAMP: 4 bytes of the day, 3 of the time, 4 of microseconds; trailing zero parts are
    absent.
    """
    if p >= stop or load_u1(p) > stop - p - 1:
        return RowOutcome.SHORT, p, q
    size = load_u1(p)
    extra = load_u8(record + ResultColumnRecord.most)
    timestamp = load_u8(record + ResultColumnRecord.transcoding) == Transcoding.TIMESTAMP
    clock = 0
    micros = 0
    if size:
        if (size != 4 and size != 7 and size != 11) or not is_day(p + 1):  # noqa: PLR1714
            return RowOutcome.NO_VALUE, p, q
        if size > 4:
            clock = clock_of(p + 5, 23)
        if size > 7:
            micros = load_u4(p + 8)
        if clock < 0 or micros >= MICROS:
            return RowOutcome.NO_VALUE, p, q
    if timestamp:
        seconds = 0
        if size:
            day = days(load_u2(p + 1), load_u1(p + 3), load_u1(p + 4))
            seconds = day * 86_400 + (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
            if day == INVALID or seconds < 0 or seconds > LAST_SECOND:
                return RowOutcome.NO_VALUE, p, q
        store_big(q, seconds, 4)
        put_fraction(q + 4, micros, extra)
        return RowOutcome.DONE, p + 1 + size, q + 4 + extra
    bits = clock
    if size:
        bits |= (load_u2(p + 1) * 13 + load_u1(p + 3)) << 22 | load_u1(p + 4) << 17
    store_big(q, bits + DATETIME_OFFSET, 5)
    put_fraction(q + 5, micros, extra)
    return RowOutcome.DONE, p + 1 + size, q + 5 + extra


@helper
def put_time(record: int, p: int, stop: int, q: int) -> tuple[int, int, int]:
    """Write TIME from its parts: sign, days, time, and 4 bytes of microseconds if they are not zero."""
    if p >= stop or load_u1(p) > stop - p - 1:
        return RowOutcome.SHORT, p, q
    size = load_u1(p)
    extra = load_u8(record + ResultColumnRecord.most)
    number = 0
    if size:
        if size != 8 and size != 12:  # noqa: PLR1714
            return RowOutcome.NO_VALUE, p, q
        clock = clock_of(p + 6, 23)
        hours = load_u4(p + 2) * 24 + (clock >> 12)
        micros = load_u4(p + 9) if size == 12 else 0
        if clock < 0 or hours > LAST_HOUR or micros >= MICROS:
            return RowOutcome.NO_VALUE, p, q
        part = micros
        if extra == 0:
            part = 0
        elif extra < 3:
            part = micros // 10_000 if extra == 1 else micros // 100
        number = (hours << 12 | clock & 0xFFF) << (8 * extra) | part
        if load_u1(p + 1):
            number = -number
    store_big(q, number + (TIME_OFFSET << (8 * extra)), 3 + extra)
    return RowOutcome.DONE, p + 1 + size, q + 3 + extra


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
