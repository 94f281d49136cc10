"""Kernels that number the table maps of a range by content, in order of appearance.

A table map is never identified by its table id: the server reuses ids, and every statement sends its maps again. The
list `active` (ActiveRecords) has the ids of the running statement.
"""

from __future__ import annotations

from replica.native.compile import helper, inlined
from replica.native.memory import load_u1, load_u2, load_u4, load_u8, store_u8
from replica.rows.scan.kernels.kernel_state import HINTS
from replica.rows.scan.records import ActiveRecord, MapRecord


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
