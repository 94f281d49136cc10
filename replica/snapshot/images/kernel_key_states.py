"""Halves by key: what they leave of each at a place, and how a chunk's rows and those of the stream come together.

Halves are what changes remove and put (`kernel_row_halves.py`). All addresses are of memory that the caller holds.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u1, load_u4, load_u8, store_u4, store_u8
from replica.rows.decode.kernel_row_keys import (
    compare_bytes,
)
from replica.rows.scan.kernel_maps import content_hash, same_bytes
from replica.snapshot.images.half_record import PUTS, HalfRecord


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
def count_copies(halves: int, count: int, sign: int, table: int, mask: int, firsts: int, more: int) -> int:
    """Count, per image that these halves have, by how many rows with it there are more behind them; with -1 as `sign`,
    before them. Return how many different images there are; the key of a half is its image.

    `table`: zeros, int32, more than twice the halves. `firsts`: takes an int64 an image, the first half that has it.
    `more`: zeros, int64 an image, takes the counts.
    """
    found = 0
    for i in range(count):
        half = halves + i * HalfRecord.BYTES
        number = find_key(
            halves, firsts, load_u8(half + HalfRecord.key), load_u8(half + HalfRecord.key_size), table, mask
        )
        if number < 0:
            store_u4(table + (-1 - number) * 4, found + 1)
            store_u8(firsts + found * 8, i)
            number = found
            found += 1
        step = sign if load_u8(half + HalfRecord.flags) & PUTS else -sign
        store_u8(more + number * 8, load_u8(more + number * 8) + step)
    return found


@kernel
def drop_counted(
    images: int, ends: int, rows: int, halves: int, firsts: int, table: int, mask: int, more: int, take: int
) -> int:
    """Write the numbers of a block's rows to `take`, but for one with an image for each time that there is one less;
    count those in `more`. Return how many rows are left.

    `firsts`, `table`, `more`: as count_copies() leaves them.
    """
    found = 0
    begin = 0
    for row in range(rows):
        end = load_u8(ends + row * 8)
        number = find_key(halves, firsts, images + begin, end - begin, table, mask)
        begin = end
        if number >= 0:
            left = load_u8(more + number * 8)
            if left < 0:
                store_u8(more + number * 8, left + 1)
                continue
        store_u8(take + found * 8, row)
        found += 1
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
