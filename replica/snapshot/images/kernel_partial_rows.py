"""Records of row halves, and kernels that complete row images without all columns (binlog_row_image other than FULL).

A half is either the before image or the after image of a row change, with its key. An insert has one half that puts a
row, a delete has one that removes a row, and an update has both.

The missing values come from the before image, or from the chunk's row and the later changes of it. The caller owns all
memory, and every image has been walked to its end before.
"""

from __future__ import annotations

from replica.native.compile import helper, kernel
from replica.native.memory import copy, load_u1, load_u8, store_u1, store_u8
from replica.native.record import Record, word
from replica.rows.types.kernels.kernel_dates import closed_version
from replica.rows.types.kernels.kernel_numbers import short_little_endian
from replica.rows.types.kinds import HISTORY_CLOSED, KIND_ROW_END, PlanRecord

SPOT_BYTES = 16
UNTOLD = -2
NULL = -1
# Flags of a half.
PUTS = 1
IS_WHOLE = 2
KEEPS = 4


class HalfRecord(Record):
    """One image of a row change."""

    place = word("where the event group ends that committed it: place_of() of its location")
    key = word("address of its canonical key bytes")
    key_size = word("bytes of the key, -1: the images do not tell it")
    image = word("address of the row image")
    size = word("bytes of the image")
    slot = word("number of its table map")
    flags = word(
        "PUTS: the image is what is there afterwards, else what was there before; IS_WHOLE: with all columns, else the "
        "bitmap of its columns stands before it; KEEPS: the row had this key before, in the half before this one of it"
    )


@helper
def value_size(plan: int, column: int, position: int) -> int:
    """Return the bytes of a value that is not NULL, including its length prefix."""
    size = load_u8(plan + column * PlanRecord.BYTES + PlanRecord.width)
    return size if size >= 0 else short_little_endian(position, -size) - size


@helper
def is_bit(bitmap: int, number: int) -> int:
    return (load_u1(bitmap + (number >> 3)) >> (number & 7)) & 1


@helper
def merge_image(plan: int, columns: int, base: int, bitmap: int, present: int, image: int, target: int) -> int:
    """Write a full image with the columns of `bitmap` from `image` and the others from `base`; return its end."""
    nulls = (columns + 7) >> 3
    for i in range(nulls):
        store_u1(target + i, 0)
    end = target + nulls
    base_at = base + nulls
    image_at = image + ((present + 7) >> 3)
    k = 0
    for c in range(columns):
        null = is_bit(base, c)
        size = 0 if null else value_size(plan, c, base_at)
        source = base_at
        base_at += size
        if is_bit(bitmap, c):
            null = is_bit(image, k)
            k += 1
            size = 0 if null else value_size(plan, c, image_at)
            source = image_at
            image_at += size
        if null:
            store_u1(target + (c >> 3), load_u1(target + (c >> 3)) | (1 << (c & 7)))
        copy(end, source, size)
        end += size
    if columns & 7:  # the server sets the unused bits
        store_u1(target + nulls - 1, load_u1(target + nulls - 1) | 0xFF << (columns & 7))
    return end


@helper
def bits_in_both(one: int, other: int, count: int) -> int:
    """Count the bits set in both bitmaps among the first `count`."""
    total = 0
    for i in range(count):
        total += is_bit(one, i) & is_bit(other, i)
    return total


@helper
def project_image(
    plan: int, columns: int, bitmap: int, present: int, image: int, wanted: int, some: int, target: int
) -> int:
    """Write the `wanted` columns of an image, of which `bitmap` contains `some`; return the end."""
    nulls = (some + 7) >> 3
    for i in range(nulls):
        store_u1(target + i, 0)
    end = target + nulls
    p = image + ((present + 7) >> 3)
    k = 0
    n = 0
    for c in range(columns):
        if is_bit(bitmap, c) == 0:
            continue
        null = is_bit(image, k)
        k += 1
        size = 0 if null else value_size(plan, c, p)
        if is_bit(wanted, c):
            if null:
                store_u1(target + (n >> 3), load_u1(target + (n >> 3)) | (1 << (n & 7)))
            copy(end, p, size)
            end += size
            n += 1
        p += size
    if some & 7:  # the server sets the unused bits
        store_u1(target + nulls - 1, load_u1(target + nulls - 1) | 0xFF << (some & 7))
    return end


@helper
def row_end_column(plan: int, columns: int) -> int:
    """Return the column that ends the period of a system-versioned row, or -1 if the table has none."""
    for c in range(columns):
        if load_u8(plan + c * PlanRecord.BYTES + PlanRecord.kind) == KIND_ROW_END:
            return c
    return -1


@helper
def is_past(plan: int, row_end: int, bitmap: int, present: int, image: int, otherwise: int) -> int:
    """Return whether an image is that of a history row; return `otherwise` if the image lacks the row end."""
    if is_bit(bitmap, row_end) == 0:
        return otherwise
    p = image + ((present + 7) >> 3)
    k = 0
    for c in range(row_end):
        if is_bit(bitmap, c):
            if is_bit(image, k) == 0:
                p += value_size(plan, c, p)
            k += 1
    return 0 if is_bit(image, k) else closed_version(p) == HISTORY_CLOSED


@helper
def take_values(plan: int, columns: int, bitmap: int, image: int, spots: int) -> int:
    """Record where an image has the values of columns that no later image has; return their number.

    `bitmap`: columns of the image, 0 for all. `spots`: address and bytes (UNTOLD, NULL) per column.
    """
    present = columns
    if bitmap:
        present = 0
        for c in range(columns):
            present += is_bit(bitmap, c)
    p = image + ((present + 7) >> 3)
    k = 0
    taken = 0
    for c in range(columns):
        if bitmap and is_bit(bitmap, c) == 0:
            continue
        null = is_bit(image, k)
        k += 1
        size = NULL if null else value_size(plan, c, p)
        if load_u8(spots + c * SPOT_BYTES + 8) == UNTOLD:
            store_u8(spots + c * SPOT_BYTES, p)
            store_u8(spots + c * SPOT_BYTES + 8, size)
            taken += 1
        p += max(size, 0)
    return taken


@helper
def find_values(halves: int, links: int, last: int, row: int, plan: int, columns: int, spots: int) -> bool:
    """Find all values of a row whose last half is `last`; `row` is the chunk's image of the row, 0 if the chunk has
    none.
    """
    left = columns
    for c in range(columns):
        store_u8(spots + c * SPOT_BYTES + 8, UNTOLD)
    told = (columns + 7) >> 3
    number = last
    while True:
        half = halves + number * HalfRecord.BYTES
        flags = load_u8(half + HalfRecord.flags)
        image = load_u8(half + HalfRecord.image)
        if flags & PUTS == 0:
            return False  # a removed row cannot be changed
        if flags & IS_WHOLE:
            return left == take_values(plan, columns, 0, image, spots)
        left -= take_values(plan, columns, image, image + told, spots)
        if left == 0:
            return True
        before = load_u8(links + number * 8)
        if flags & KEEPS:
            if before < 0:
                return False
            number = load_u8(links + before * 8)
            if number >= 0:
                continue
        elif before >= 0:
            return False  # the chunk may have an earlier row with this key
            # All values that changes set are recorded. The other values are those of the chunk's row. If a row was
            # created after the window's start and the chunk has it, the chunk read the row after its creation.
        return row != 0 and left == take_values(plan, columns, 0, row, spots)


@kernel
def complete_rows(
    halves: int,
    links: int,
    numbers: int,
    count: int,
    rows: int,
    plan: int,
    columns: int,
    spots: int,
    sizes: int,
    target: int,
) -> int:
    """Write full images of the rows with these last halves, one after the other; return the bytes of all images.

    With `target` 0 the kernel only computes the sizes. The size is -1 for a row with an unknown column.

    `links`: int64, for each half the previous one of the same key, -1 for none. `numbers`, `rows`, `sizes`: int64 per
    row: its last half, the chunk's image or 0, and the size of the full image.
    """
    nulls = (columns + 7) >> 3
    total = 0
    for i in range(count):
        if not find_values(halves, links, load_u8(numbers + i * 8), load_u8(rows + i * 8), plan, columns, spots):
            store_u8(sizes + i * 8, -1)
            continue
        image = target + total
        size = nulls
        if target:
            for n in range(nulls):
                store_u1(image + n, 0)
        for c in range(columns):
            value = load_u8(spots + c * SPOT_BYTES + 8)
            if value >= 0:
                if target:
                    copy(image + size, load_u8(spots + c * SPOT_BYTES), value)
                size += value
            elif target:
                store_u1(image + (c >> 3), load_u1(image + (c >> 3)) | (1 << (c & 7)))
        store_u8(sizes + i * 8, size)
        total += size
    return total
