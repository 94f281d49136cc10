"""Kernels that record a rows event: where its images are, which columns they have, and their form."""

# ruff: noqa: PLR0911  (one return a way that an event can be malformed)

from __future__ import annotations

from replica.native.compile import helper, inlined
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u8
from replica.protocol.constants import EventType
from replica.rows.scan.records import (
    BAD_EVENT,
    FORM_COMPRESSED,
    FORM_PARTIAL,
    FORM_PLAIN,
    HINTS,
    MAX_COLUMNS,
    NO_TABLE_MAP,
    OP_UPDATE,
    STMT_END,
    ActiveRecord,
    EventRecord,
    MapRecord,
)

# A table map is never identified by its table id: the server reuses ids, and every statement sends its maps again. The
# list `active` (ActiveRecords) has the ids of the running statement.


@helper
def same_bytes(left: int, right: int, size: int) -> bool:
    whole = size & ~7
    for i in range(0, whole, 8):
        if load_u8(left + i) != load_u8(right + i):
            return False
    for i in range(whole, size):  # noqa: SIM110  (numba has no any())
        if load_u1(left + i) != load_u1(right + i):
            return False
    return True


@helper
def content_hash(address: int, size: int) -> int:
    value = size
    whole = size & ~7
    for i in range(0, whole, 8):
        value = (value ^ load_u8(address + i)) * 0x9E3779B97F4A7C1
        value ^= value >> 29
    for i in range(whole, size):
        value = (value ^ load_u1(address + i)) * 0x100000001B3
    return value ^ (value >> 32)


@helper
def find_map(data: int, offset: int, size: int, maps: int, hashed: int, table: int, mask: int) -> int:
    """Return the slot of this content, or -1 - (its place in the hash table)."""
    place = hashed & mask
    while True:
        slot = load_u8(table + place * 8) - 1
        if slot < 0:
            return -1 - place
        record = maps + slot * MapRecord.BYTES
        if (
            load_u8(record + MapRecord.hash) == hashed
            and load_u8(record + MapRecord.size) == size
            and same_bytes(data + load_u8(record + MapRecord.content), data + offset, size)
        ):
            return slot
        place = (place + 1) & mask


@helper
def table_id_at(body: int) -> int:
    return load_u4(body) | (load_u2(body + 4) << 32)


@inlined
def map_slot(
    data: int, position: int, body: int, size: int, maps: int, n_maps: int, table: int, mask: int, hints: int
) -> int:
    """Return the slot of the table map whose `size` bytes of content follow its id and flags; `n_maps` if it is new."""
    content = body + 8 - data
    hint = hints + (table_id_at(body) & (HINTS - 1)) * 8
    slot = load_u8(hint) - 1
    if slot >= 0:
        record = maps + slot * MapRecord.BYTES
        if load_u8(record + MapRecord.size) == size and same_bytes(
            data + load_u8(record + MapRecord.content), data + content, size
        ):
            return slot
    hashed = content_hash(data + content, size)
    slot = find_map(data, content, size, maps, hashed, table, mask)
    if slot < 0:
        store_u8(table + (-1 - slot) * 8, n_maps + 1)
        slot = n_maps
        record = maps + slot * MapRecord.BYTES
        store_u8(record + MapRecord.start, position)
        store_u8(record + MapRecord.content, content)
        store_u8(record + MapRecord.size, size)
        store_u8(record + MapRecord.hash, hashed)
    store_u8(hint, slot + 1)
    return slot


@helper
def active_place(active: int, n_active: int, table_id: int) -> int:
    """Return the index of this table id in the list, or `n_active`. If a statement maps an id again, the later map
    counts.
    """
    for i in range(n_active):
        if load_u8(active + i * ActiveRecord.BYTES + ActiveRecord.table_id) == table_id:
            return i
    return n_active


@helper
def active_slot(active: int, n_active: int, table_id: int) -> int:
    """Return the slot that the running statement mapped this table id to, or -1."""
    for i in range(n_active - 1, -1, -1):
        if load_u8(active + i * ActiveRecord.BYTES + ActiveRecord.table_id) == table_id:
            return load_u8(active + i * ActiveRecord.BYTES + ActiveRecord.slot)
    return -1


# Bits that `rows_event` returns; error codes are negative.
RECORDED = 1
ENDS_STATEMENT = 2
_V1, _V2 = int(EventType.WRITE_ROWS_V1), int(EventType.WRITE_ROWS)
_COMPRESSED_V1, _COMPRESSED_V2 = int(EventType.WRITE_ROWS_COMPRESSED_V1), int(EventType.WRITE_ROWS_COMPRESSED)
_LAST = int(EventType.DELETE_ROWS_COMPRESSED)
_PARTIAL_UPDATE = int(EventType.PARTIAL_UPDATE_ROWS)
_PLAIN = sum(1 << kind for kind in (*range(_V1, _V1 + 3), *range(_V2, _V2 + 3), _PARTIAL_UPDATE))


@helper
def is_rows_event(kind: int) -> bool:
    """Return True for WRITE, UPDATE and DELETE of versions 1 and 2, compressed or not, and for PARTIAL_UPDATE."""
    return (_PLAIN >> kind) & 1 != 0 if kind < 64 else _COMPRESSED_V1 <= kind <= _LAST


@helper
def all_set(bitmap: int, count: int) -> bool:
    """Return True if the first `count` bits are set."""
    for i in range(count >> 3):
        if load_u1(bitmap + i) != 255:
            return False
    low = (1 << (count & 7)) - 1
    return low == 0 or load_u1(bitmap + (count >> 3)) & low == low


@inlined
def rows_event(data: int, body: int, end: int, kind: int, active: int, n_active: int, event: int) -> int:
    """Write the record of the rows event between `body` and `end`, except start, group and statement text.

    Return RECORDED and ENDS_STATEMENT as bits, or minus an error code. An event without images is not recorded, but may
    end the statement.
    """
    if end - body < 9:
        return -BAD_EVENT
    flags = load_u2(body + 6)
    p = body + 8
    form = FORM_PLAIN
    if kind >= _COMPRESSED_V1:
        form = FORM_COMPRESSED
        op = (kind - _COMPRESSED_V1) % 3
        version_2 = kind >= _COMPRESSED_V2
    elif kind == _PARTIAL_UPDATE:
        form = FORM_PARTIAL
        op = OP_UPDATE
        version_2 = True
    else:
        version_2 = kind >= _V2
        op = kind - _V2 if version_2 else kind - _V1
    if version_2:
        if end - p < 3:
            return -BAD_EVENT
        p += load_u2(p)  # extra data, its length counts itself
        if p < body + 10 or p >= end:
            return -BAD_EVENT
    width = load_u1(p)
    p += 1
    if width == 252 and end - p >= 2:
        width = load_u2(p)
        p += 2
    elif width > 250:
        return -BAD_EVENT
    bitmap = (width + 7) >> 3
    before = p
    after = p
    p += bitmap
    if op == OP_UPDATE:
        after = p
        p += bitmap
    if width > MAX_COLUMNS or p > end:
        return -BAD_EVENT
    result = ENDS_STATEMENT if flags & STMT_END else 0
    if p == end:
        return result
    slot = active_slot(active, n_active, table_id_at(body))
    if slot < 0:
        return -NO_TABLE_MAP
    store_u8(event + EventRecord.images, p - data)
    store_u8(event + EventRecord.end, end - data)
    store_u8(event + EventRecord.op, op)
    store_u8(event + EventRecord.slot, slot)
    store_u8(event + EventRecord.width, width)
    store_u8(event + EventRecord.before, before - data)
    store_u8(event + EventRecord.after, after - data)
    store_u8(event + EventRecord.form, form)
    store_u8(event + EventRecord.flags, flags)
    whole = all_set(before, width) and (after == before or all_set(after, width))
    store_u8(event + EventRecord.whole, 1 if whole else 0)
    return result | RECORDED
