"""The rows of a stretch of the stream by key: what each change removes and puts, what that leaves of a key at a place,
and how a chunk's rows and those of the stream come together.

Every change is kept as halves: an update removes its before image and puts its after image, an insert puts, a delete
removes. All addresses are of memory that the caller holds.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u1, load_u4, load_u8, store_u4, store_u8
from replica.native.record import Record, word
from replica.rows.decode import records as d
from replica.rows.decode.kernel_row_keys import (
    KeyValueRecord,
    RowKeyRecord,
    compare_bytes,
    find_key_values,
    forget_values,
    inherit_values,
    most_key_bytes,
)
from replica.rows.decode.kernel_walk import open_event
from replica.rows.decode.records import RunState
from replica.rows.scan import records as r
from replica.rows.scan.kernel_maps import content_hash, same_bytes
from replica.rows.scan.records import EventRecord
from replica.rows.types.kernel_keys import write_key
from replica.table_reader.half_record import IS_WHOLE, KEEPS, PUTS, HalfRecord
from replica.table_reader.kernel_partial_rows import is_past, merge_image, row_end_column


class HalfTotals(Record):
    """The memory that the halves of a worklist need."""

    halves = word("how many")
    keys = word("bytes of keys, and of images that lack columns, at most; in the second pass: those that are used")


@helper
def write_half(
    totals: int,
    halves: int,
    keys: int,
    parts: int,
    count: int,
    values: int,
    place: int,
    image: int,
    size: int,
    slot: int,
    flags: int,
    plan: int,
    columns: int,
    present: int,
    bitmap: int,
    base: int,
) -> None:
    """Count one half; where there is memory for it, write it.

    `base`: the whole image before the change, just before this one, which gives what it lacks; 0: there is none.
    """
    number = load_u8(totals + HalfTotals.halves)
    used = load_u8(totals + HalfTotals.keys)
    room = most_key_bytes(parts, count, values)
    store_u8(totals + HalfTotals.halves, number + 1)
    told = (columns + 7) >> 3
    if halves == 0:
        more = 0 if present == columns else size + (image - base if base else told)
        store_u8(totals + HalfTotals.keys, used + max(room, 0) + more)
        return
    half = halves + number * HalfRecord.BYTES
    target = keys + used
    if room >= 0:
        target = write_key(parts, count, values, keys + used)
        room = target - keys - used
    if present == columns:
        flags |= IS_WHOLE
    elif base:
        size = merge_image(plan, columns, base, bitmap, present, image, target) - target
        image = target
        target += size
        flags |= IS_WHOLE
    else:
        copy(target, bitmap, told)
        copy(target + told, image, size)
        size += told
        image = target
        target += size
    store_u8(totals + HalfTotals.keys, target - keys)
    store_u8(half + HalfRecord.place, place)
    store_u8(half + HalfRecord.key, keys + used)
    store_u8(half + HalfRecord.key_size, room)
    store_u8(half + HalfRecord.image, image)
    store_u8(half + HalfRecord.size, size)
    store_u8(half + HalfRecord.slot, slot)
    store_u8(half + HalfRecord.flags, flags)


@kernel
def find_row_halves(
    data: int,
    events: int,
    work: int,
    work_size: int,
    slots: int,
    row_keys: int,
    places: int,
    before_values: int,
    after_values: int,
    halves: int,
    keys: int,
    totals: int,
    run: int,
) -> int:
    """Write the halves of all rows of these events and count them; with 0 as `halves`, count what they need. Return
    DONE, or a code with its fault. Rows of the past of a system-versioned table have the keys of those of now, and are
    none of the table's.

    `places`: int64 per event group of the range. `before_values`, `after_values`: KeyValueRecords of the longest key.
    """
    store_u8(totals + HalfTotals.halves, 0)
    store_u8(totals + HalfTotals.keys, 0)
    for item in range(work_size):
        number = load_u4(work + item * 4)
        event = events + number * EventRecord.BYTES
        slot_number = load_u8(event + EventRecord.slot)
        row_key = row_keys + slot_number * RowKeyRecord.BYTES
        ranks = load_u8(row_key + RowKeyRecord.ranks)
        parts = load_u8(row_key + RowKeyRecord.parts)
        count = load_u8(row_key + RowKeyRecord.count)
        place = load_u8(places + load_u8(event + EventRecord.group) * 8)
        op = load_u8(event + EventRecord.op)
        position = data + load_u8(event + EventRecord.images)
        end = data + load_u8(event + EventRecord.end)
        before = data + load_u8(event + EventRecord.before)
        after = data + load_u8(event + EventRecord.after)
        columns, plan, present_before, present_after = open_event(data, event, number, slots, run)
        if present_before <= 0 or present_after <= 0:
            return d.BAD_WIDTH if present_before < 0 else d.NO_COLUMNS
        row_end = row_end_column(plan, columns)
        past = 0
        while position < end:
            store_u8(run + RunState.fault, position - data)
            forget_values(before_values, count)
            middle = find_key_values(plan, columns, present_before, before, position, end, ranks, before_values)
            if middle == 0:
                return d.SHORT_IMAGE
            first = position
            if row_end >= 0:
                past = is_past(plan, row_end, before, present_before, position, 0)
            if past == 0:
                write_half(
                    totals,
                    halves,
                    keys,
                    parts,
                    count,
                    before_values,
                    place,
                    position,
                    middle - position,
                    slot_number,
                    PUTS if op == r.OP_INSERT else 0,
                    plan,
                    columns,
                    present_before,
                    before,
                    0,
                )
            position = middle
            if op == r.OP_UPDATE:
                forget_values(after_values, count)
                middle = find_key_values(plan, columns, present_after, after, position, end, ranks, after_values)
                if middle == 0:
                    return d.SHORT_IMAGE
                inherit_values(before_values, after_values, count)
                kept = past == 0 and same_values(before_values, after_values, count)
                if row_end >= 0:
                    past = is_past(plan, row_end, after, present_after, position, past)
                if past == 0:
                    write_half(
                        totals,
                        halves,
                        keys,
                        parts,
                        count,
                        after_values,
                        place,
                        position,
                        middle - position,
                        slot_number,
                        PUTS | (KEEPS if kept else 0),
                        plan,
                        columns,
                        present_after,
                        after,
                        first if present_before == columns else 0,
                    )
                position = middle
    return d.DONE


@helper
def find_key(halves: int, deciders: int, key: int, size: int, table: int, mask: int) -> int:
    """Return the number of a key among the distinct ones, or -1 - (its place in the hash table)."""
    place = content_hash(key, size) & mask
    while True:
        number = load_u4(table + place * 4) - 1
        if number < 0:
            return -1 - place
        half = halves + load_u8(deciders + number * 8) * HalfRecord.BYTES
        if load_u8(half + HalfRecord.key_size) == size and same_bytes(load_u8(half + HalfRecord.key), key, size):
            return number
        place = (place + 1) & mask


@helper
def same_values(left: int, right: int, count: int) -> bool:
    """Tell whether the values of a key are the same bytes, all of them told."""
    for i in range(count):
        one = left + i * KeyValueRecord.BYTES
        two = right + i * KeyValueRecord.BYTES
        size = load_u8(one + KeyValueRecord.size)
        if size < 0 or size != load_u8(two + KeyValueRecord.size):
            return False
        if not same_bytes(load_u8(one + KeyValueRecord.start), load_u8(two + KeyValueRecord.start), size):
            return False
    return True


@kernel
def decide(
    halves: int, count: int, start: int, upto: int, until: int, table: int, mask: int, deciders: int, links: int
) -> int:
    """Find, per key that a half behind `start` and up to `until` is of, the half that says what is there at `upto`: the
    last one up to there, or else the first one behind. Return how many keys there are, or -1 - the half whose key is
    not told.

    `table`: zeros, int32, more than twice the halves. `deciders`: takes an int64 a key. `links`: -1, int64 a half;
    takes the half before it of the same key, of those up to `upto`.
    """
    found = 0
    for i in range(count):
        half = halves + i * HalfRecord.BYTES
        place = load_u8(half + HalfRecord.place)
        if place <= start or place > until:
            continue
        size = load_u8(half + HalfRecord.key_size)
        if size < 0:
            return -1 - i
        number = find_key(halves, deciders, load_u8(half + HalfRecord.key), size, table, mask)
        if number < 0:
            store_u4(table + (-1 - number) * 4, found + 1)
            store_u8(deciders + found * 8, i)
            found += 1
        elif place <= upto:
            store_u8(links + i * 8, load_u8(deciders + number * 8))
            store_u8(deciders + number * 8, i)
    return found


@helper
def half_order(halves: int, left: int, right: int) -> int:
    one = halves + left * HalfRecord.BYTES
    two = halves + right * HalfRecord.BYTES
    return compare_bytes(
        load_u8(one + HalfRecord.key),
        load_u8(one + HalfRecord.key_size),
        load_u8(two + HalfRecord.key),
        load_u8(two + HalfRecord.key_size),
    )


@kernel
def sort_by_key(halves: int, numbers: int, spare: int, count: int) -> None:
    """Sort int64 numbers of halves by their keys, in place; `spare` is as large."""
    width = 1
    source = numbers
    target = spare
    while width < count:
        first = 0
        while first < count:
            middle = min(first + width, count)
            last = min(first + 2 * width, count)
            i = first
            j = middle
            for k in range(first, last):
                from_left = j == last
                if not from_left and i < middle:
                    from_left = half_order(halves, load_u8(source + i * 8), load_u8(source + j * 8)) <= 0
                if from_left:
                    store_u8(target + k * 8, load_u8(source + i * 8))
                    i += 1
                else:
                    store_u8(target + k * 8, load_u8(source + j * 8))
                    j += 1
            first += 2 * width
        source, target = target, source
        width *= 2
    if source != numbers:
        copy(numbers, source, count * 8)


@kernel
def merge_in_order(
    keys: int, key_ends: int, rows: int, halves: int, present: int, first: int, last: int, take: int
) -> int:
    """Merge a chunk's rows with the halves [first, last), both ascending by key; return how many rows that gives.

    `take`: int64, takes the number of a chunk's row, or -1 - the number of a half. A row of the chunk whose key a half
    has is left out; a half whose byte of `present` is 0 is, too. Return -1 - the row whose key is not above the one
    before it.
    """
    count = 0
    number = first
    row = 0
    begin = 0
    before = 0
    before_size = -1
    while row < rows or number < last:
        order = 1
        end = 0
        if row < rows:
            end = load_u8(key_ends + row * 8)
            if before_size >= 0 and compare_bytes(before, before_size, keys + begin, end - begin) >= 0:
                return -1 - row
            order = -1
        if number < last:
            half = halves + number * HalfRecord.BYTES
            if row < rows:
                order = compare_bytes(
                    keys + begin, end - begin, load_u8(half + HalfRecord.key), load_u8(half + HalfRecord.key_size)
                )
            if order >= 0:
                if load_u1(present + number):
                    store_u8(take + count * 8, -1 - number)
                    count += 1
                number += 1
        if order < 0:
            store_u8(take + count * 8, row)
            count += 1
        if order <= 0:
            before = keys + begin
            before_size = end - begin
            begin = end
            row += 1
        elif row < rows:
            before_size = -1  # this row is looked at again
    return count


@kernel
def drop_touched(
    keys: int, key_ends: int, rows: int, halves: int, numbers: int, count: int, table: int, mask: int, take: int
) -> int:
    """Write the numbers of a chunk's rows whose keys no half has to `take`; return how many there are.

    `numbers`: 0, 1, … as int64. `table`: zeros, int32, more than twice the halves.
    """
    for i in range(count):
        half = halves + i * HalfRecord.BYTES
        place = content_hash(load_u8(half + HalfRecord.key), load_u8(half + HalfRecord.key_size)) & mask
        while load_u4(table + place * 4):
            place = (place + 1) & mask
        store_u4(table + place * 4, i + 1)
    found = 0
    begin = 0
    for row in range(rows):
        end = load_u8(key_ends + row * 8)
        if find_key(halves, numbers, keys + begin, end - begin, table, mask) < 0:
            store_u8(take + found * 8, row)
            found += 1
        begin = end
    return found


@kernel
def find_rows(
    keys: int, key_ends: int, rows: int, halves: int, numbers: int, count: int, table: int, mask: int, found: int
) -> None:
    """Find the rows of a chunk that have the keys of these halves, int64 `numbers`: `found` takes the number of each,
    and is left as it is where there is none.

    `table`: zeros, int32, more than twice the numbers.
    """
    for i in range(count):
        half = halves + load_u8(numbers + i * 8) * HalfRecord.BYTES
        place = content_hash(load_u8(half + HalfRecord.key), load_u8(half + HalfRecord.key_size)) & mask
        while load_u4(table + place * 4):
            place = (place + 1) & mask
        store_u4(table + place * 4, i + 1)
    begin = 0
    for row in range(rows):
        end = load_u8(key_ends + row * 8)
        number = find_key(halves, numbers, keys + begin, end - begin, table, mask)
        if number >= 0:
            store_u8(found + number * 8, row)
        begin = end


@kernel
def copy_pieces(sources: int, sizes: int, count: int, target: int) -> None:
    """Copy pieces of memory, int64 addresses and sizes, one behind the other."""
    for i in range(count):
        size = load_u8(sizes + i * 8)
        copy(target, load_u8(sources + i * 8), size)
        target += size
