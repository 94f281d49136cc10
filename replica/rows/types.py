"""The type table: one row per MariaDB type says how it lies on the wire and what it becomes in Arrow and in Spark.

In: a type by its wire code (TABLE_MAP) or by its name (information_schema). Out: a `Kind`, which both decoders
dispatch on, and the Arrow and Spark types that belong to it. Both ways lead through the same row, so a schema that was
made from the catalog before the first event fits the rows that the stream brings later. docs/types.md is this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.constants import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.schema.table import ColumnSchema

MAX_DECIMAL_PRECISION = 38  # of Spark's DECIMAL and Arrow's decimal128; MariaDB goes to 65


class Kind(IntEnum):
    """How a value lies on the wire and what it becomes: the code that decoders dispatch on."""

    OPAQUE = 0  # skipped: its length is known, its value is not asked for
    INT8 = 1
    UINT8 = 2
    INT16 = 3
    UINT16 = 4
    INT24 = 5
    UINT24 = 6
    INT32 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    FLOAT = 11
    DOUBLE = 12
    DECIMAL = 13
    DECIMAL_TEXT = 14
    YEAR = 15
    BIT = 16
    BIT64 = 17
    DATE = 18
    DATETIME = 19
    TIMESTAMP = 20
    TIME = 21
    OLD_DATETIME = 22
    OLD_TIMESTAMP = 23
    OLD_TIME = 24
    DATE_TEXT = 25
    DATETIME_TEXT = 26
    TIMESTAMP_TEXT = 27
    OLD_DATETIME_TEXT = 28
    OLD_TIMESTAMP_TEXT = 29
    ENUM = 30
    SET = 31
    TEXT = 32  # bytes are UTF-8 already
    LATIN1 = 33
    ENCODED_TEXT = 34  # any other character set
    BYTES = 35
    PADDED_BYTES = 36  # trailing zeros are not logged
    UUID = 37
    INET4 = 38
    INET6 = 39


@dataclass(frozen=True, slots=True)
class ValuePolicy:
    """What becomes of values that Spark's types cannot hold.

    `invalid_dates` rules zero dates, partial dates and days that no calendar has (31 February): 'null' makes them
    NULL, 'error' stops with a ProtocolError, 'text' turns every DATE, DATETIME and TIMESTAMP column into a STRING.
    """

    invalid_dates: Literal["null", "error", "text"] = "null"


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column as Spark sees it: `arrow` is the type of its buffers, `spark` the same type in Spark's DDL."""

    name: str
    arrow: pa.DataType
    spark: str


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One MariaDB type. `kind` and `unsigned_kind` differ only for integers; the last two columns are for the docs."""

    declared: str
    wire: tuple[ColumnType, ...]
    data_types: tuple[str, ...]  # information_schema.COLUMNS.DATA_TYPE
    kind: Kind
    wire_bytes: str
    remarks: str = ""
    unsigned_kind: Kind | None = None


_TIMESTAMP = "Seconds since 1970 UTC, unsigned: reaches 2106. The zero timestamp follows `invalidDates`."
_DATE = "Zero, partial and impossible dates follow `invalidDates`."

TYPES: tuple[TypeRow, ...] = (
    TypeRow("TINYINT, BOOL", (ColumnType.TINY,), ("tinyint",), Kind.INT8, "1", unsigned_kind=Kind.UINT8),
    TypeRow("SMALLINT", (ColumnType.SHORT,), ("smallint",), Kind.INT16, "2", unsigned_kind=Kind.UINT16),
    TypeRow("MEDIUMINT", (ColumnType.INT24,), ("mediumint",), Kind.INT24, "3", unsigned_kind=Kind.UINT24),
    TypeRow("INT", (ColumnType.LONG,), ("int",), Kind.INT32, "4", unsigned_kind=Kind.UINT32),
    TypeRow("BIGINT", (ColumnType.LONGLONG,), ("bigint",), Kind.INT64, "8", unsigned_kind=Kind.UINT64),
    TypeRow("FLOAT", (ColumnType.FLOAT,), ("float",), Kind.FLOAT, "4", "Keeps -0.0 and denormals."),
    TypeRow("DOUBLE", (ColumnType.DOUBLE,), ("double",), Kind.DOUBLE, "8", "Keeps -0.0 and denormals."),
    TypeRow(
        "DECIMAL(p≤38, s)",
        (ColumnType.NEWDECIMAL,),
        ("decimal",),
        Kind.DECIMAL,
        "1-17",
        "Exact, with the scale's zeros.",
    ),
    TypeRow(
        "DECIMAL(p>38, s)",
        (ColumnType.NEWDECIMAL,),
        ("decimal",),
        Kind.DECIMAL_TEXT,
        "18-30",
        "Exact decimal text with the scale's zeros, as SELECT prints it.",
    ),
    TypeRow("BIT(1-63)", (ColumnType.BIT,), ("bit",), Kind.BIT, "1-8, big endian", "The bits as a number."),
    TypeRow("BIT(64)", (ColumnType.BIT,), ("bit",), Kind.BIT64, "8, big endian", "The bits as a number."),
    TypeRow("YEAR", (ColumnType.YEAR,), ("year",), Kind.YEAR, "1", "0000 is 0."),
    TypeRow("DATE", (ColumnType.DATE,), ("date",), Kind.DATE, "3", _DATE),
    TypeRow("DATETIME(f)", (ColumnType.DATETIME2,), ("datetime",), Kind.DATETIME, "5 + (f+1)/2", _DATE),
    TypeRow("TIMESTAMP(f)", (ColumnType.TIMESTAMP2,), ("timestamp",), Kind.TIMESTAMP, "4 + (f+1)/2", _TIMESTAMP),
    TypeRow(
        "TIME(f)", (ColumnType.TIME2,), ("time",), Kind.TIME, "3 + (f+1)/2", "-838:59:59.999999 to 838:59:59.999999."
    ),
    TypeRow("DATETIME, old format", (ColumnType.DATETIME,), ("datetime",), Kind.OLD_DATETIME, "8", _DATE),
    TypeRow("TIMESTAMP, old format", (ColumnType.TIMESTAMP,), ("timestamp",), Kind.OLD_TIMESTAMP, "4", _TIMESTAMP),
    TypeRow("TIME, old format", (ColumnType.TIME,), ("time",), Kind.OLD_TIME, "3", "As TIME, whole seconds."),
    TypeRow("ENUM", (ColumnType.ENUM,), ("enum",), Kind.ENUM, "1-2", "The label; '' for the error value 0."),
    TypeRow(
        "SET", (ColumnType.SET,), ("set",), Kind.SET, "1-8", "Labels in the order of the declaration, comma between."
    ),
    TypeRow("CHAR", (ColumnType.STRING,), ("char",), Kind.TEXT, "1-2 + n", "Without pad spaces, as SELECT gives it."),
    TypeRow("VARCHAR", (ColumnType.VARCHAR,), ("varchar",), Kind.TEXT, "1-2 + n", "Trailing spaces kept."),
    TypeRow(
        "TINYTEXT, TEXT, MEDIUMTEXT, LONGTEXT, JSON",
        (ColumnType.BLOB,),
        ("tinytext", "text", "mediumtext", "longtext"),
        Kind.TEXT,
        "1-4 + n",
        "JSON is text as it was written.",
    ),
    TypeRow("BINARY", (ColumnType.STRING,), ("binary",), Kind.PADDED_BYTES, "1 + n", "Padded with 0x00 to its length."),
    TypeRow("VARBINARY", (ColumnType.VARCHAR,), ("varbinary",), Kind.BYTES, "1-2 + n"),
    TypeRow(
        "TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB",
        (ColumnType.BLOB,),
        ("tinyblob", "blob", "mediumblob", "longblob"),
        Kind.BYTES,
        "1-4 + n",
    ),
    TypeRow(
        "GEOMETRY and its subtypes",
        (ColumnType.GEOMETRY,),
        (
            "geometry",
            "point",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geometrycollection",
        ),
        Kind.BYTES,
        "4 + n",
        "SRID (4 bytes, little endian), then WKB.",
    ),
    TypeRow(
        "UUID", (ColumnType.STRING,), ("uuid",), Kind.UUID, "1 + 0-16", "Known from the catalog only, else BINARY."
    ),
    TypeRow(
        "INET4", (ColumnType.STRING,), ("inet4",), Kind.INET4, "1 + 0-4", "Known from the catalog only, else BINARY."
    ),
    TypeRow(
        "INET6", (ColumnType.STRING,), ("inet6",), Kind.INET6, "1 + 0-16", "Known from the catalog only, else BINARY."
    ),
    TypeRow(
        "VECTOR",
        (ColumnType.VARCHAR,),
        ("vector",),
        Kind.OPAQUE,
        "1-2 + 4n",
        "An error, where the catalog names it so.",
    ),
    TypeRow(
        "VARCHAR and BLOB types with COMPRESSED",
        (ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED),
        (),
        Kind.OPAQUE,
        "1-4 + n",
        "An error.",
    ),
)

_FIXED: Mapping[Kind, tuple[pa.DataType, str]] = {
    Kind.INT8: (pa.int8(), "TINYINT"),
    Kind.UINT8: (pa.int16(), "SMALLINT"),
    Kind.INT16: (pa.int16(), "SMALLINT"),
    Kind.UINT16: (pa.int32(), "INT"),
    Kind.INT24: (pa.int32(), "INT"),
    Kind.UINT24: (pa.int32(), "INT"),
    Kind.INT32: (pa.int32(), "INT"),
    Kind.UINT32: (pa.int64(), "BIGINT"),
    Kind.INT64: (pa.int64(), "BIGINT"),
    Kind.UINT64: (pa.decimal128(20, 0), "DECIMAL(20,0)"),
    Kind.FLOAT: (pa.float32(), "FLOAT"),
    Kind.DOUBLE: (pa.float64(), "DOUBLE"),
    Kind.YEAR: (pa.int32(), "INT"),
    Kind.BIT: (pa.int64(), "BIGINT"),
    Kind.BIT64: (pa.decimal128(20, 0), "DECIMAL(20,0)"),
    Kind.DATE: (pa.date32(), "DATE"),
    Kind.DATETIME: (pa.timestamp("us"), "TIMESTAMP_NTZ"),
    Kind.OLD_DATETIME: (pa.timestamp("us"), "TIMESTAMP_NTZ"),
    Kind.TIMESTAMP: (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    Kind.OLD_TIMESTAMP: (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    Kind.TIME: (pa.duration("us"), "INTERVAL DAY TO SECOND"),
    Kind.OLD_TIME: (pa.duration("us"), "INTERVAL DAY TO SECOND"),
    Kind.BYTES: (pa.binary(), "BINARY"),
    Kind.PADDED_BYTES: (pa.binary(), "BINARY"),
}

AS_TEXT: Mapping[Kind, Kind] = {
    Kind.DATE: Kind.DATE_TEXT,
    Kind.DATETIME: Kind.DATETIME_TEXT,
    Kind.TIMESTAMP: Kind.TIMESTAMP_TEXT,
    Kind.OLD_DATETIME: Kind.OLD_DATETIME_TEXT,
    Kind.OLD_TIMESTAMP: Kind.OLD_TIMESTAMP_TEXT,
}

# The old formats stand behind the new ones of the same name; the catalog does not tell which a table has.
_BY_NAME: Mapping[str, TypeRow] = {name: row for row in reversed(TYPES) for name in row.data_types}


def arrow_and_spark(kind: Kind, precision: int = 0, scale: int = 0) -> tuple[pa.DataType, str]:
    """The Arrow type and the Spark DDL type of a kind; precision and scale matter to DECIMAL alone."""
    if kind == Kind.DECIMAL:
        return pa.decimal128(precision, scale), f"DECIMAL({precision},{scale})"
    return _FIXED.get(kind, (pa.string(), "STRING"))


def refine(row: TypeRow, *, unsigned: bool, precision: int, policy: ValuePolicy) -> Kind:
    """The row's kind, narrowed by what the declaration adds: signedness, a wide DECIMAL, a full BIT, dates as text.

    `precision` is the digits of a DECIMAL or the bits of a BIT.
    """
    kind = row.unsigned_kind if unsigned and row.unsigned_kind is not None else row.kind
    if kind in (Kind.DECIMAL, Kind.DECIMAL_TEXT):
        return Kind.DECIMAL if precision <= MAX_DECIMAL_PRECISION else Kind.DECIMAL_TEXT
    if kind in (Kind.BIT, Kind.BIT64):
        return Kind.BIT64 if precision == 64 else Kind.BIT
    return AS_TEXT.get(kind, kind) if policy.invalid_dates == "text" else kind


def row_of(column: ColumnSchema) -> TypeRow:
    """The type table's row of a catalog column; SchemaError for a type that is not in the table."""
    row = _BY_NAME.get(column.data_type)
    if row is None:
        raise SchemaError(
            f"Column {column.name} has the type {column.column_type}, which is not in the type table.",
            hint="Leave the table out, or report the type together with the server's version.",
        )
    return row


def output_column(column: ColumnSchema, policy: ValuePolicy) -> OutputColumn:
    """The Spark side of a catalog column, before any event was seen. UnsupportedColumnError if it cannot be decoded."""
    row = row_of(column)
    if row.kind == Kind.OPAQUE or column.column_type.endswith("COMPRESSED*/"):
        raise UnsupportedColumnError(
            f"Column {column.name} is declared {column.column_type}, which cannot be decoded yet.",
            hint="Select other tables, or change the column's type.",
        )
    kind = refine(row, unsigned=column.unsigned, precision=column.precision or 0, policy=policy)
    arrow, spark = arrow_and_spark(kind, column.precision or 0, column.scale or 0)
    return OutputColumn(column.name, arrow, spark)
