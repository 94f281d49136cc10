"""Plan that turns each column of a result into a column of a row image, and check of the result against the definition.

`plan_result` returns one `ResultPlan` per column, in order. It raises SchemaError if the result does not match the
definition, because DDL ran between the two. A result shows neither ENUM and SET labels, nor whether a column was
dropped and added again with the same type. The caller detects such changes through DDL in the binlog.

Measured on 10.5, 10.11 and 11.8 with character_set_results=NULL: lengths are in bytes, and COMPRESSED columns have one
byte more.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError, SchemaError, UnsupportedColumnError
from replica.native.record import Record, word
from replica.protocol.charset import BINARY, charset_named, charset_of
from replica.protocol.constants import ColumnType
from replica.protocol.rows.table_map import parse_table_map, value_extent
from replica.rows.types.entry import Sql
from replica.rows.types.kinds import Transcoding
from replica.rows.types.types import KINDS, NAMES, type_of
from replica.snapshot.rows.table_map import result_type, table_map_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.packets.results import ResultColumn
    from replica.protocol.rows.table_map import ColumnDef
    from replica.schema.table import ColumnSchema, TableSchema


class ResultColumnRecord(Record):
    """Column of a result, for the kernel that writes row images."""

    transcoding = word("types.Transcoding")
    came = word("bytes of a number in the result")
    width = word("bytes in the row image, or minus the bytes of the length prefix")
    most = word("the most bytes of a counted value; DECIMAL: digits before the point; times: bytes of the fraction")
    scale = word("DECIMAL: digits after the point")
    key = word("which part of the key it is, -1: none")


class BlockState(Record):
    """Block of row images that the kernel fills."""

    position = word("offset of the next row in the stretch")
    images = word("address of the row images")
    images_used = word("bytes of them")
    images_room = word("bytes there is room for")
    ends = word("address of the ends of the images, int64 a row")
    key_ends = word("the same of the key bytes")
    rows = word("rows so far")
    rows_room = word("rows there is room for")
    keys = word("address of the key bytes")
    keys_used = word("bytes of them")
    keys_room = word("bytes there is room for")
    need = word("GROW_*: bytes that the next row needs")
    column = word("the column that a row was refused for, -1: none")


class RowOutcome(IntEnum):
    """Outcome of a kernel run: done, more memory needed, or the row at `position` is refused."""

    DONE = 0
    GROW_IMAGES = 1
    GROW_ROWS = 2
    GROW_KEYS = 3
    TORN = 4
    NO_ROW = 5
    SHORT = 6
    LONG = 7
    TOO_LONG = 8
    NO_VALUE = 9
    NULL_KEY = 10
    OUT_OF_ORDER = 11


SLACK: Final = 64
"""Bytes after a row that may be overwritten, because short strings are copied in whole words."""

_CAME: Final = {
    ColumnType.TINY: 1, ColumnType.SHORT: 2, ColumnType.YEAR: 2, ColumnType.INT24: 4, ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8, ColumnType.FLOAT: 4, ColumnType.DOUBLE: 8,
}  # fmt: skip
"""Bytes of a number in a row of the binary protocol."""
_UNSIGNED_FLAG: Final = 32
_COMPRESSED: Final = "COMPRESSED"
_HINT: Final = "The table was changed after its definition was read: read it again."
_REFUSALS: Final = {
    RowOutcome.TORN: "ends in the middle of a packet",
    RowOutcome.NO_ROW: "does not begin with the header of a row",
    RowOutcome.SHORT: "is shorter than its values",
    RowOutcome.LONG: "has bytes after its last value",
    RowOutcome.TOO_LONG: "has a value that is longer than its column",
    RowOutcome.NO_VALUE: "has a value that its column cannot hold",
    RowOutcome.NULL_KEY: "has NULL in its key",
    RowOutcome.OUT_OF_ORDER: "has a key that does not sort after that of the row before it",
}


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """Plan of one column, with the fields of ResultColumnRecord except the key."""

    name: str
    transcoding: Transcoding
    came: int
    width: int
    most: int = 0
    scale: int = 0


def plan_result(schema: TableSchema, columns: Sequence[ResultColumn]) -> tuple[ResultPlan, ...]:
    """Return the plans for all columns of a result of `select_list`."""
    if len(columns) != len(schema.columns):
        raise SchemaError(
            f"A result of table {schema.name} has {len(columns)} columns, and its definition {len(schema.columns)}.",
            hint=_HINT,
        )
    wire = parse_table_map(table_map_body(schema)).columns
    plans = []
    for column, answered, image in zip(schema.columns, columns, wire, strict=True):
        what = _difference(column, answered, image)
        if what:
            raise SchemaError(
                f"Column {column.name} of table {schema.name} is {column.column_type} in its definition, "
                f"but its {what} in the result differs.",
                hint=_HINT,
            )
        plans.append(_plan(column, answered, image))
    return tuple(plans)


def refusal(outcome: RowOutcome, table: str, row: int, column: str | None) -> ProtocolError:
    """Return the error for a malformed row.

    Args:
        outcome: reason of the kernel.
        table: name of the table.
        row: number of the row in the result, from 0.
        column: name of the column; None if the error concerns the whole row.
    """
    where = f", column {column}" if column else ""
    return ProtocolError(
        f"row {row + 1} of a result of table {table}{where}: it {_REFUSALS[outcome]}",
        hint="The bytes were damaged on the way, or the server is newer than this reader.",
    )


def _plan(column: ColumnSchema, answered: ResultColumn, image: ColumnDef) -> ResultPlan:
    transcoding = result_type(column).transcoding
    width, prefix = value_extent(image)
    most = scale = 0
    match transcoding:
        case Transcoding.DECIMAL:
            most, scale = image.precision - image.scale, image.scale
        case Transcoding.DATETIME | Transcoding.TIMESTAMP | Transcoding.TIME:
            most = (image.fsp + 1) // 2
        case Transcoding.COUNTED | Transcoding.TRIMMED:
            most = (1 << 8 * prefix) - 1 if image.type in (ColumnType.BLOB, ColumnType.GEOMETRY) else image.length
    return ResultPlan(column.name, transcoding, _CAME.get(ColumnType(answered.type), 0), width or -prefix, most, scale)


def _difference(column: ColumnSchema, answered: ResultColumn, image: ColumnDef) -> str:
    """Return the property in which the result differs from the definition, '' if they agree."""
    expected = result_type(column)
    if answered.type not in expected.codes:
        return "type"
    if expected.transcoding == Transcoding.NUMBER:
        if _CAME[ColumnType(answered.type)] < image.length:
            return "type"
        if expected.expression == "{c}" and bool(answered.flags & _UNSIGNED_FLAG) != column.unsigned:
            return "sign"
    if _charset(column, answered):
        return "character set"
    return _length(column, answered, image)


def _charset(column: ColumnSchema, answered: ResultColumn) -> bool:
    if column.charset is None or KINDS[type_of(column).kind].sql is not Sql.CHARACTERS or column.labels is not None:
        return answered.charset != BINARY
    try:
        return charset_of(answered.charset) != charset_named(column.charset)
    except UnsupportedColumnError:
        return True


def _length(column: ColumnSchema, answered: ResultColumn, image: ColumnDef) -> str:
    match image.type:
        case ColumnType.NEWDECIMAL:
            signs = (image.scale > 0) + (not answered.flags & _UNSIGNED_FLAG)
            digits = (answered.length - signs, answered.decimals)
            return "" if digits == (image.precision, image.scale) else "precision"
        case ColumnType.TIMESTAMP2 | ColumnType.DATETIME2 | ColumnType.TIME2:
            return "" if answered.decimals == image.fsp else "number of digits"
        case ColumnType.YEAR if answered.type == ColumnType.YEAR:
            return "" if answered.length == 4 else "length"
        case ColumnType.BIT:
            return "" if answered.length == image.length else "length"
        case ColumnType.STRING | ColumnType.VARCHAR | ColumnType.BLOB:
            octets = NAMES[column.data_type].logged or column.octets or 0
            counted = image.type == ColumnType.VARCHAR and _COMPRESSED in column.column_type.upper()
            return "" if answered.length == octets + counted else "length"
    return ""
