"""The plain twin of images.py: a rows event as it was logged -> the same with images that hold plain values.

In: a `RowsEvent`, the columns of its table map, and the layout that its rows will be read with. Out: an event that is
not compressed, in which values of COMPRESSED columns and MySQL's JSON stand plain behind a length of four bytes, and
MySQL's partial updates are whole. Slow and obvious.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replica.errors import ProtocolError
from replica.protocol.compression import inflate
from replica.protocol.constants import EventType
from replica.protocol.mysql.partial_update import apply_partial_update
from replica.protocol.rows.rows_event import RowsKind
from replica.protocol.wire import Cursor, is_set
from replica.rows.tables.layout import StoredColumns
from replica.rows.tables.plan import PREPARED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.rows_event import RowsEvent
    from replica.protocol.rows.table_map import ColumnDef
    from replica.protocol.wire import Buffer
    from replica.rows.tables.layout import RowLayout


def plain_rows(event: RowsEvent, columns: Sequence[ColumnDef], layout: RowLayout) -> RowsEvent:
    """Return the event with plain images; ProtocolError where a value cannot be inflated or parsed."""
    stored = StoredColumns(columns, layout.columns)
    images: Buffer = inflate(event.images) if event.compressed else event.images
    if event.width != len(columns):
        raise ProtocolError(f"a rows event of {event.width} columns after a table map of {len(columns)}")
    if event.header.event_type == EventType.PARTIAL_UPDATE_ROWS:
        images = apply_partial_update(
            images, event.columns_before, event.columns_after, columns, wanted=stored.unpack.keys()
        )
    elif stored:
        images = _rewritten(images, event, layout, stored)
    return replace(event, images=memoryview(images), compressed=False)


def _rewritten(images: Buffer, event: RowsEvent, layout: RowLayout, stored: StoredColumns) -> bytes:
    sides = {
        RowsKind.INSERT: (event.columns_after,),
        RowsKind.UPDATE: (event.columns_before, event.columns_after),
        RowsKind.DELETE: (event.columns_before,),
    }[event.kind]
    out = bytearray()
    cursor = Cursor(images)
    while cursor:
        start = cursor.offset
        for side in sides:
            present = [index for index in range(event.width) if is_set(side, index)]
            nulls = cursor.bits(len(present))
            out += nulls
            for k, index in enumerate(present):
                if not is_set(nulls, k):
                    out += _value(cursor, index, layout, stored)
        if cursor.offset == start:
            raise ProtocolError("a rows event without columns has row images", offset=start)
    return bytes(out)


def _value(cursor: Cursor, index: int, layout: RowLayout, stored: StoredColumns) -> bytes:
    width = int(stored.widths[index])
    if width >= 0:
        return bytes(cursor.take(width))
    length = bytes(cursor.take(-width))
    value = cursor.take(int.from_bytes(length, "little"))
    unpack = stored.unpack.get(index)
    if unpack is None:
        return length + bytes(value)
    try:
        plain = bytes(unpack(value))
    except ProtocolError as error:
        raise ProtocolError(f"column {layout.columns[index].name}: {error.message}") from None
    return len(plain).to_bytes(PREPARED_PREFIX, "little") + plain
