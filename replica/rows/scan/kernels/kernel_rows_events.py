# ruff: noqa: PLR0911  (one return a way that an event can be malformed)
"""Kernels that record a rows event: where its images are, which columns they have, and their form."""

from __future__ import annotations

from replica.native.compile import helper, inlined
from replica.native.memory import load_u1, load_u2, store_u8
from replica.protocol.constants import EventType
from replica.rows.scan.kernels.kernel_maps import active_slot, table_id_at
from replica.rows.scan.kernels.kernel_state import BAD_EVENT, MAX_COLUMNS, NO_TABLE_MAP, STMT_END
from replica.rows.scan.records import FORM_COMPRESSED, FORM_PARTIAL, FORM_PLAIN, OP_UPDATE, EventRecord

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
