"""Make table maps and rows events as the parsers return them, for what takes no bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from replica.protocol.constants import ColumnType, EventType
from replica.protocol.header import EventHeader
from replica.protocol.rows.rows_event import RowsEvent, RowsKind
from replica.protocol.rows.table_map import METADATA_LENGTHS, TableMapEvent, read_column_type
from replica.protocol.wire import Cursor
from replica.rows.tables.layout import RowLayout, compile_layout
from replica.rows.types.types import ValuePolicy
from tests.kit.binlog.rows import rows
from tests.unit.protocol.events.decoding import decode_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.table_map import ColumnDef

UTF8MB4, LATIN1, BINARY = 45, 8, 63
HEADER = EventHeader(0, EventType.TABLE_MAP, 1, 100, 1000, 0)
_COMPRESSED = EventType.WRITE_ROWS_COMPRESSED_V1 - EventType.WRITE_ROWS_V1
_CODES = {RowsKind.INSERT: 23, RowsKind.UPDATE: 24, RowsKind.DELETE: 25}


def column(name: str | None, code: int, metadata: bytes = b"", **known: Any) -> ColumnDef:
    """A column of a table map, its metadata read by the real parser; `known` is what optional metadata would tell."""
    assert len(metadata) == METADATA_LENGTHS[code]
    return replace(read_column_type(code, Cursor(metadata), 0), name=name, **known)


def integer(name: str, code: ColumnType = ColumnType.LONG, *, unsigned: bool = False) -> ColumnDef:
    return column(name, code, unsigned=unsigned)


def varchar(name: str, octets: int = 255, collation: int = UTF8MB4) -> ColumnDef:
    return column(name, ColumnType.VARCHAR, octets.to_bytes(2, "little"), collation=collation)


def table_map(*columns: ColumnDef, database: str = "shop", table: str = "orders") -> TableMapEvent:
    return TableMapEvent(HEADER, 7, 0, database, table, columns, (), (), (), b"")


def layout_of(*columns: ColumnDef, policy: ValuePolicy | None = None) -> RowLayout:
    return compile_layout(table_map(*columns), None, None, policy or ValuePolicy())


def rows_event(
    kind: RowsKind,
    width: int,
    images: bytes,
    *,
    before: Sequence[bool] | None = None,
    after: Sequence[bool] | None = None,
    compressed: bool = False,
) -> RowsEvent:
    """A rows event; without a bit set all columns are present."""
    if kind == RowsKind.INSERT:
        before, after = after, None
    elif kind == RowsKind.UPDATE:
        after = after or [True] * width
    code = EventType(_CODES[kind] + (_COMPRESSED if compressed else 0))
    return decode_body(RowsEvent, code, rows(7, width, images, before=before, after=after))
