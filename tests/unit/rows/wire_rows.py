"""What tests need to speak like a primary: table maps and rows events from values, encoded here and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from replica.protocol.column_def import METADATA_LENGTHS, read_column_type
from replica.protocol.constants import ColumnType, EventType
from replica.protocol.header import EventHeader
from replica.protocol.rows_event import RowsEvent, RowsKind
from replica.protocol.table_map import TableMapEvent
from replica.protocol.wire import Cursor
from replica.rows.tables.layout import RowLayout, compile_layout
from replica.rows.types.types import ValuePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.column_def import ColumnDef

UTF8MB4, LATIN1, BINARY = 45, 8, 63
HEADER = EventHeader(0, EventType.TABLE_MAP, 1, 100, 1000, 0)
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


def bits(flags: Sequence[bool], *, fill: bool = False) -> bytes:
    """A bit set, least significant bit first; `fill` is what the unused bits of the last byte hold."""
    padded = [*flags, *[fill] * (-len(flags) % 8)]
    return bytes(sum(flag << i for i, flag in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8))


def image(values: Sequence[bytes | None]) -> bytes:
    """A row image of the present columns' wire values. MariaDB sets the unused NULL bits, so they are set here."""
    return bits([value is None for value in values], fill=True) + b"".join(value for value in values if value)


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
    full = [True] * width
    return RowsEvent(
        EventHeader(0, _CODES[kind], 1, 100, 1000, 0),
        kind,
        1,
        7,
        1,
        width,
        b"" if kind == RowsKind.INSERT else bits(before or full, fill=True),
        b"" if kind == RowsKind.DELETE else bits(after or full, fill=True),
        memoryview(images),
        compressed,
    )
