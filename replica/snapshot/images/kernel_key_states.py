"""Kernels that compute the state of each key at a location, and merge a chunk's rows with the stream's rows.

The input is row halves (`kernel_row_halves.py`): images that changes remove and put. The caller owns all memory.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u1, load_u4, load_u8, store_u4, store_u8
from replica.rows.decode.kernels.kernel_frontier import compare_bytes
from replica.rows.scan.kernels.kernel_rows_events import content_hash, same_bytes
from replica.snapshot.images.kernel_partial_rows import PUTS, HalfRecord


@helper
def find_key(halves: int, deciders: int, key: int, size: int, table: int, mask: int) -> int:
    """Return the number of a key among the distinct ones, or -1 - (its slot in the hash table)."""
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
    """Find, for each key, the half that determines the row's state at `upto`.

    Only halves after `start` and up to `until` count. The deciding half is the last one of the key up to `upto`, or
    else the first one after `upto`. Return the number of keys, or -1 - the number of a half whose key is unknown.

    `table`: int32 zeros, more than twice as many as halves. `deciders`: receives one int64 per key. `links`: one int64
    per half, -1 at first; receives the previous half of the same key, for halves up to `upto`.
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
    """Sort int64 numbers of halves by their keys, in place and stable; `spare` has the same size."""
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
    """Merge a chunk's rows with the halves [first, last), both ascending by key; return the number of merged rows.

    `take`: int64, receives the number of a chunk row, or -1 - the number of a half. A half replaces a chunk row with
    the same key. A half whose `present` byte is 0 adds no row. Return -1 - the row whose key is not above the previous
    key.
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
            before_size = -1  # the next iteration compares this row again
    return count


@kernel
def drop_touched(
    keys: int, key_ends: int, rows: int, halves: int, numbers: int, count: int, table: int, mask: int, take: int
) -> int:
    """Write the numbers of the chunk rows whose keys have no half to `take`; return their number.

    `numbers`: 0, 1, ... as int64. `table`: int32 zeros, more than twice as many as halves.
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
    """Count, for each image, how many more rows have it after these halves; with `sign` -1, before them.

    The key of a half is its image. Return the number of distinct images.

    `table`: int32 zeros, more than twice as many as halves. `firsts`: receives one int64 per image, its first half.
    `more`: int64 zeros, one per image, receives the counts.
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
    """Write the numbers of a block's rows to `take`, without one row for each negative count of its image.

    Each dropped row raises the count in `more` by one. Return the number of rows that are left.

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
    """Find the rows of a chunk that have the keys of these halves, given as int64 `numbers`.

    `found` receives the row number for each half, and stays unchanged if the chunk has no such row. `table`: int32
    zeros, more than twice as many as numbers.
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
    """Copy `count` pieces of memory, given as int64 addresses and sizes, one after the other to `target`."""
    for i in range(count):
        size = load_u8(sizes + i * 8)
        copy(target, load_u8(sources + i * 8), size)
        target += size
