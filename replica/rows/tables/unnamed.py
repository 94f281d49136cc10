"""Definition of a table that is known only from its table map.

Columns are named @1, @2, … as in mariadb-binlog. Facts that the stream lacks get these defaults: integers are signed,
and the labels of ENUM and SET are their numbers, as text. CHAR, VARCHAR and TEXT cannot be distinguished from BINARY,
VARBINARY and BLOB. With `text="utf8"` all are read as UTF-8 text; invalid bytes follow the policy for invalid text.
With `text="bytes"` all are read as bytes, which is exact: the caller decides which values are text. Temporal columns in
the old format cannot be decoded: the stream does not give their width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from replica.errors import UnsupportedColumnError
from replica.protocol.charset import BINARY, charset_of
from replica.protocol.constants import ColumnType
from replica.rows.tables.plan import PREPARED
from replica.rows.types.entry import Sql
from replica.rows.types.registry import KINDS
from replica.rows.types.types import type_of_wire
from replica.schema.table import ColumnSchema, TableSchema

if TYPE_CHECKING:
    from replica.protocol.rows.column_def import ColumnDef
    from replica.protocol.rows.table_map import TableMapEvent

UnnamedText = Literal["utf8", "bytes"]

_TEMPORAL: Final = (ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2)


def unnamed_schema(table_map: TableMapEvent, text: UnnamedText = "utf8") -> TableSchema:
    """Make a definition from a table map alone, with the names, signs and collations that the table map has."""
    return TableSchema(
        database=table_map.database,
        table=table_map.table,
        columns=tuple(_column(column, f"@{number}", text) for number, column in enumerate(table_map.columns, 1)),
        primary_key=table_map.primary_key,
    )


def _column(column: ColumnDef, name: str, text: UnnamedText) -> ColumnSchema:
    code = PREPARED.get(column.type, column.type)
    type_ = type_of_wire(code, binary=text == "bytes" if column.collation is None else column.collation == BINARY)
    if type_ is None:
        raise UnsupportedColumnError(
            f"Column {name} has the type code {column.type}, which cannot be decoded.",
            hint="Leave the table out of the selection; MySQL's own types are not supported.",
        )
    data_type = type_.names[min(column.length, 4) - 1 if code == ColumnType.BLOB else 0].name
    charset = _charset(column) if KINDS[type_.kind].sql is Sql.CHARACTERS else None
    return ColumnSchema(
        name=column.name or name,
        data_type=data_type,
        column_type=data_type,
        nullable=column.nullable,
        unsigned=bool(column.unsigned),
        charset=charset,
        labels=_numbers(column) if column.labels is None else None,
        octets=_octets(column),
        precision=column.precision if column.type == ColumnType.NEWDECIMAL else _bits(column),
        scale=column.scale if column.type == ColumnType.NEWDECIMAL else None,
        fsp=column.fsp if column.type in _TEMPORAL else None,
        key=column.is_key,
    )


def _charset(column: ColumnDef) -> str:
    if column.collation is None:
        return "utf8mb4"
    if column.collation == BINARY:
        return "binary"
    try:
        return charset_of(column.collation).name
    except UnsupportedColumnError:
        return "utf8mb4"  # the plan uses the collation, and refuses it if the column is read


def _numbers(column: ColumnDef) -> tuple[str, ...] | None:
    """Return numbers as labels, as many as the width of the column allows."""
    if column.type == ColumnType.ENUM:
        return tuple(map(str, range(1, 1 << 8 * column.length)))
    return tuple(map(str, range(1, 8 * column.length + 1))) if column.type == ColumnType.SET else None


def _octets(column: ColumnDef) -> int | None:
    """Return the bytes of the longest value, in the catalog's unit."""
    match column.type:
        case ColumnType.STRING | ColumnType.VARCHAR:
            return column.length
        case ColumnType.VARCHAR_COMPRESSED:
            return column.length - 1  # the metadata includes the header byte of a compressed value
        case ColumnType.BLOB | ColumnType.BLOB_COMPRESSED:
            return (1 << 8 * column.length) - 1
    return None


def _bits(column: ColumnDef) -> int | None:
    return column.length if column.type == ColumnType.BIT else None
