"""Select list of a table, and the TABLE_MAP of its rows, as a server with binlog_row_metadata=FULL would log it.

`select_list` has one expression per column, chosen so that row images can be built from the result. The list names all
columns, because `*` omits INVISIBLE columns and the hidden row period. The expressions have no aliases: ORDER BY would
take an alias for the column, and sort by the cast.

`table_map_body` returns the event's body for the row images of result_rows.py. It differs from the server's own table
map in details that a SELECT does not show and decoders do not need. COMPRESSED columns are plain, as SELECT returns
them. Times have the current format, even if the table has an old one. A collation is any one of its character set. ENUM
and SET labels are in UTF-8. Hashes of long keys are absent.

Source: Table_map_log_event::init_metadata_fields in sql/log_event_server.cc, Field::save_field_metadata.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.protocol.charset import BINARY, collation_in
from replica.protocol.constants import ColumnType, MetadataField
from replica.protocol.rows.table_map import CHARACTER, METADATA_LENGTHS, NUMERIC
from replica.rows.types.entry import ResultType, Sql
from replica.rows.types.kinds import Transcoding
from replica.rows.types.types import KINDS, NAMES, type_of
from replica.schema.text.naming import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replica.schema.table import ColumnSchema, TableSchema

_SHORT_YEAR: Final = ResultType(
    "YEAR(CAST({c} AS DATE)) - 1900", (ColumnType.LONG, ColumnType.LONGLONG), ColumnType.YEAR, Transcoding.NUMBER
)
"""Result type of YEAR(2). After an ALTER, the server still stores four digits; SELECT returns the last two as a number.
"""


def result_type(column: ColumnSchema) -> ResultType:
    """Return how a column of this type is selected; SchemaError for a type that the registry lacks."""
    if column.column_type.startswith("year(2)"):
        return _SHORT_YEAR
    found = type_of(column).result_set
    if found is None:
        raise SchemaError(
            f"Column {column.name} has the type {column.column_type}, which no table of MariaDB has.",
            hint="Leave the table out.",
        )
    return found


def select_list(schema: TableSchema) -> str:
    """Return the select list of a table, one expression per column in table order."""
    return ", ".join(_expression(column) for column in schema.columns)


def _expression(column: ColumnSchema) -> str:
    size = NAMES[column.data_type].logged or column.octets or 0
    return result_type(column).expression.replace("{n}", str(size)).replace("{c}", quoted(column.name))


TABLE_ID: Final = 1
"""Table id of every table map built here, because only rows of the map's own table follow it."""

_BIT_LEN_EXACT: Final = 1  # TM_BIT_LEN_EXACT_F, which every server sets
_LABELLED: Final = {"enum": ColumnType.ENUM, "set": ColumnType.SET}
_GEOMETRIES: Final = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip
_FEW_LABELS: Final = 256  # an ENUM with fewer labels takes one byte
_WIDE_SET: Final = 32  # up to this many labels, a SET takes one byte per eight labels
_GEOMETRY_PREFIX: Final = 4


class _Column(NamedTuple):
    schema: ColumnSchema
    code: ColumnType  # type in the event, in which ENUM and SET are STRING
    real: ColumnType
    metadata: bytes


def table_map_body(schema: TableSchema) -> bytes:
    """Return the body of a TABLE_MAP event; SchemaError for an unknown type or character set."""
    columns = [_column(column) for column in schema.columns]
    codes = bytes(column.code for column in columns)
    metadata = b"".join(column.metadata for column in columns)
    return b"".join(
        (
            TABLE_ID.to_bytes(6, "little"),
            struct.pack("<H", _BIT_LEN_EXACT),
            *(bytes((len(name),)) + name + b"\0" for name in (schema.database.encode(), schema.table.encode())),
            _lenenc(len(columns)) + codes,
            _counted(metadata),
            _bits_lowest_first([column.schema.nullable for column in columns]),
            *(bytes((field,)) + _counted(value) for field, value in _optional(schema, columns) if value),
        )
    )


def _optional(schema: TableSchema, columns: Sequence[_Column]) -> Iterable[tuple[MetadataField, bytes]]:
    def of(types: Iterable[ColumnType]) -> list[ColumnSchema]:
        return [column.schema for column in columns if column.real in types]

    signs = [column.unsigned or column.data_type == "year" for column in of(NUMERIC)]
    yield MetadataField.SIGNEDNESS, _bits_highest_first(signs)
    yield MetadataField.COLUMN_CHARSET, b"".join(_lenenc(_collation(column)) for column in of(CHARACTER))
    yield MetadataField.COLUMN_NAME, b"".join(_counted(column.schema.name.encode()) for column in columns)
    yield MetadataField.SET_STR_VALUE, b"".join(map(_labels, of({ColumnType.SET})))
    yield MetadataField.ENUM_STR_VALUE, b"".join(map(_labels, of({ColumnType.ENUM})))
    yield MetadataField.GEOMETRY_TYPE, bytes(_GEOMETRIES.index(c.data_type) for c in of({ColumnType.GEOMETRY}))
    yield MetadataField.SIMPLE_PRIMARY_KEY, b"".join(map(_lenenc, _primary_key(schema)))
    labelled = b"".join(_lenenc(_labels_collation(column)) for column in of(_LABELLED.values()))
    yield MetadataField.ENUM_AND_SET_COLUMN_CHARSET, labelled


def _primary_key(schema: TableSchema) -> tuple[int, ...]:
    """Return the primary key columns as the server has them; the row end follows them in a system-versioned table."""
    ends = tuple(number for number, column in enumerate(schema.columns) if column.period == "end")
    hidden = ends if schema.primary_key and schema.versioned else ()
    return (*schema.primary_key, *(number for number in hidden if number not in schema.primary_key))


def _column(column: ColumnSchema) -> _Column:
    code = result_type(column).image
    return _Column(column, code, _LABELLED.get(column.data_type, code), _metadata(column, code))


def _metadata(column: ColumnSchema, code: ColumnType) -> bytes:
    """Return the metadata bytes as Field::save_field_metadata writes them."""
    written = _METADATA.get(code)
    if METADATA_LENGTHS[code] and written is None:
        raise AssertionError(f"no metadata is written for {code!r}")
    return written(column) if written else b""


def _of_string(column: ColumnSchema) -> bytes:
    labels = len(column.labels or ())
    if column.data_type == "enum":
        return bytes((ColumnType.ENUM, 1 if labels < _FEW_LABELS else 2))
    if column.data_type == "set":
        return bytes((ColumnType.SET, (labels + 7) // 8 if labels <= _WIDE_SET else 8))
    octets = _octets(column)
    # The type byte contains the two high bits of the length, inverted.
    return bytes((ColumnType.STRING ^ octets >> 4 & 0x30, octets & 0xFF))


def _fraction(column: ColumnSchema) -> bytes:
    return bytes((column.fsp or 0,))


def _octets(column: ColumnSchema) -> int:
    octets = NAMES[column.data_type].logged or column.octets
    if octets is None:
        raise SchemaError(
            f"Column {column.name} is {column.column_type}, and its definition has no length.",
            hint="Read the definition from the server's catalog.",
        )
    return octets


def _collation(column: ColumnSchema) -> int:
    if KINDS[type_of(column).kind].sql is not Sql.CHARACTERS:
        return BINARY
    if column.charset is None:
        raise SchemaError(
            f"Column {column.name} is {column.column_type}, and its definition has no character set.",
            hint="Read the definition from the server's catalog.",
        )
    return collation_in(column.charset)


def _labels_collation(column: ColumnSchema) -> int:
    return BINARY if column.charset == "binary" else collation_in("utf8mb4")


def _labels(column: ColumnSchema) -> bytes:
    labels = [label.encode() for label in column.labels or ()]
    return _lenenc(len(labels)) + b"".join(map(_counted, labels))


def _lenenc(number: int) -> bytes:
    """Return a length-encoded integer: one byte up to 250, otherwise a marker byte and 2, 3 or 8 bytes."""
    if number < 0xFB:
        return bytes((number,))
    for first, size in ((0xFC, 2), (0xFD, 3)):
        if number < 1 << (8 * size):
            return bytes((first,)) + number.to_bytes(size, "little")
    return b"\xfe" + number.to_bytes(8, "little")


def _counted(data: bytes) -> bytes:
    return _lenenc(len(data)) + data


def _bits_lowest_first(flags: Sequence[bool]) -> bytes:
    number = sum(flag << index for index, flag in enumerate(flags))
    return number.to_bytes((len(flags) + 7) // 8, "little")


def _bits_highest_first(flags: Sequence[bool]) -> bytes:
    number = sum(flag << (index ^ 7) for index, flag in enumerate(flags))
    return number.to_bytes((len(flags) + 7) // 8, "little")


_METADATA: Final[dict[ColumnType, Callable[[ColumnSchema], bytes]]] = {
    ColumnType.STRING: _of_string,
    ColumnType.VARCHAR: lambda column: struct.pack("<H", _octets(column)),
    ColumnType.BLOB: lambda column: bytes(((_octets(column).bit_length() + 7) // 8,)),
    ColumnType.GEOMETRY: lambda _: bytes((_GEOMETRY_PREFIX,)),
    ColumnType.NEWDECIMAL: lambda column: bytes((column.precision or 0, column.scale or 0)),
    ColumnType.BIT: lambda column: bytes(((column.precision or 0) % 8, (column.precision or 0) // 8)),
    ColumnType.TIMESTAMP2: _fraction,
    ColumnType.DATETIME2: _fraction,
    ColumnType.TIME2: _fraction,
    ColumnType.FLOAT: lambda _: b"\x04",
    ColumnType.DOUBLE: lambda _: b"\x08",
}
