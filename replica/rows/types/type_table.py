"""The type table: one row for each MariaDB type, with the kind of its values and what the docs say of it."""

from __future__ import annotations

from dataclasses import dataclass

from replica.protocol.constants import ColumnType
from replica.rows.types.kinds import Kind


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One MariaDB type. `kind` and `unsigned_kind` differ only for integers; what follows `kind` is for the docs.

    `json` is how `mariadb-replica dump --json` shows a value.
    """

    declared: str
    wire: tuple[ColumnType, ...]
    data_types: tuple[str, ...]  # information_schema.COLUMNS.DATA_TYPE
    kind: Kind
    wire_bytes: str
    json: str
    remarks: str = ""
    unsigned_kind: Kind | None = None


_TIMESTAMP = "Seconds since 1970 UTC, unsigned: reaches 2106. The zero timestamp follows `invalidDates`."
_DATE = "Zero, partial and impossible dates follow `invalidDates`."
_BY_CATALOG = "Known from the catalog or the DDL only, else BINARY."
_COMPRESSED = "The value itself, inflated. Bytes that do not inflate are an error."
_NUMBER, _LARGE = "number", "number, text beyond ±2^53"
_TEXT, _HEX = "text", '`{"hex":"00FF"}`'
_UTC = "text, in UTC"

TYPES: tuple[TypeRow, ...] = (
    TypeRow("TINYINT, BOOL", (ColumnType.TINY,), ("tinyint",), Kind.INT8, "1", _NUMBER, unsigned_kind=Kind.UINT8),
    TypeRow("SMALLINT", (ColumnType.SHORT,), ("smallint",), Kind.INT16, "2", _NUMBER, unsigned_kind=Kind.UINT16),
    TypeRow("MEDIUMINT", (ColumnType.INT24,), ("mediumint",), Kind.INT24, "3", _NUMBER, unsigned_kind=Kind.UINT24),
    TypeRow("INT", (ColumnType.LONG,), ("int",), Kind.INT32, "4", _NUMBER, unsigned_kind=Kind.UINT32),
    TypeRow("BIGINT", (ColumnType.LONGLONG,), ("bigint",), Kind.INT64, "8", _LARGE, unsigned_kind=Kind.UINT64),
    TypeRow("FLOAT", (ColumnType.FLOAT,), ("float",), Kind.FLOAT, "4", "number", "Keeps -0.0 and denormals."),
    TypeRow("DOUBLE", (ColumnType.DOUBLE,), ("double",), Kind.DOUBLE, "8", "number", "Keeps -0.0 and denormals."),
    TypeRow(
        "DECIMAL(p≤38, s)",
        (ColumnType.NEWDECIMAL,),
        ("decimal",),
        Kind.DECIMAL,
        "1-17",
        _TEXT,
        "Exact, with the scale's zeros.",
    ),
    TypeRow(
        "DECIMAL(p>38, s)",
        (ColumnType.NEWDECIMAL,),
        ("decimal",),
        Kind.DECIMAL_TEXT,
        "18-30",
        _TEXT,
        "Exact decimal text with the scale's zeros, as SELECT prints it.",
    ),
    TypeRow("BIT(1-63)", (ColumnType.BIT,), ("bit",), Kind.BIT, "1-8, big endian", _LARGE, "The bits as a number."),
    TypeRow("BIT(64)", (ColumnType.BIT,), ("bit",), Kind.BIT64, "8, big endian", _LARGE, "The bits as a number."),
    TypeRow("YEAR", (ColumnType.YEAR,), ("year",), Kind.YEAR, "1", "text, four digits", "0000 is 0."),
    TypeRow("DATE", (ColumnType.DATE,), ("date",), Kind.DATE, "3", _TEXT, _DATE),
    TypeRow("DATETIME(f)", (ColumnType.DATETIME2,), ("datetime",), Kind.DATETIME, "5 + (f+1)/2", _TEXT, _DATE),
    TypeRow("TIMESTAMP(f)", (ColumnType.TIMESTAMP2,), ("timestamp",), Kind.TIMESTAMP, "4 + (f+1)/2", _UTC, _TIMESTAMP),
    TypeRow(
        "TIME(f)",
        (ColumnType.TIME2,),
        ("time",),
        Kind.TIME,
        "3 + (f+1)/2",
        _TEXT,
        "-838:59:59.999999 to 838:59:59.999999.",
    ),
    TypeRow("DATETIME, old format", (ColumnType.DATETIME,), ("datetime",), Kind.OLD_DATETIME, "8", _TEXT, _DATE),
    TypeRow(
        "TIMESTAMP, old format", (ColumnType.TIMESTAMP,), ("timestamp",), Kind.OLD_TIMESTAMP, "4", _UTC, _TIMESTAMP
    ),
    TypeRow("TIME, old format", (ColumnType.TIME,), ("time",), Kind.OLD_TIME, "3", _TEXT, "As TIME, whole seconds."),
    TypeRow("ENUM", (ColumnType.ENUM,), ("enum",), Kind.ENUM, "1-2", _TEXT, "The label; '' for the error value 0."),
    TypeRow(
        "SET",
        (ColumnType.SET,),
        ("set",),
        Kind.SET,
        "1-8",
        _TEXT,
        "Labels in the order of the declaration, comma between.",
    ),
    TypeRow(
        "CHAR", (ColumnType.STRING,), ("char",), Kind.TEXT, "1-2 + n", _TEXT, "Without pad spaces, as SELECT gives it."
    ),
    TypeRow("VARCHAR", (ColumnType.VARCHAR,), ("varchar",), Kind.TEXT, "1-2 + n", _TEXT, "Trailing spaces kept."),
    TypeRow(
        "TINYTEXT, TEXT, MEDIUMTEXT, LONGTEXT, JSON",
        (ColumnType.BLOB,),
        ("tinytext", "text", "mediumtext", "longtext"),
        Kind.TEXT,
        "1-4 + n",
        _TEXT,
        "JSON is text as it was written.",
    ),
    TypeRow(
        "BINARY",
        (ColumnType.STRING,),
        ("binary",),
        Kind.PADDED_BYTES,
        "1 + n",
        _HEX,
        "Padded with 0x00 to its length.",
    ),
    TypeRow("VARBINARY", (ColumnType.VARCHAR,), ("varbinary",), Kind.BYTES, "1-2 + n", _HEX),
    TypeRow(
        "TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB",
        (ColumnType.BLOB,),
        ("tinyblob", "blob", "mediumblob", "longblob"),
        Kind.BYTES,
        "1-4 + n",
        _HEX,
    ),
    TypeRow(
        "VARCHAR, TEXT types COMPRESSED",
        (ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED),
        (),
        Kind.TEXT,
        "1-4 + n",
        _TEXT,
        _COMPRESSED,
    ),
    TypeRow(
        "VARBINARY, BLOB types COMPRESSED",
        (ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED),
        (),
        Kind.BYTES,
        "1-4 + n",
        _HEX,
        _COMPRESSED,
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
        Kind.GEOMETRY,
        "4 + n",
        _HEX,
        "SRID (4 bytes, little endian), then WKB; apart under `geometry=spark`.",
    ),
    TypeRow("UUID", (ColumnType.STRING,), ("uuid",), Kind.UUID, "1 + 0-16", _TEXT, _BY_CATALOG),
    TypeRow("INET4", (ColumnType.STRING,), ("inet4",), Kind.INET4, "1 + 0-4", _TEXT, _BY_CATALOG),
    TypeRow("INET6", (ColumnType.STRING,), ("inet6",), Kind.INET6, "1 + 0-16", _TEXT, _BY_CATALOG),
    TypeRow(
        "VECTOR(n)",
        (ColumnType.VARCHAR,),
        ("vector",),
        Kind.VECTOR,
        "1-2 + 4n",
        "array of numbers",
        "Known from the catalog or the DDL only, else VARBINARY.",
    ),
    TypeRow("JSON of MySQL", (ColumnType.JSON,), ("json",), Kind.TEXT, "1-4 + n", _TEXT, "As MySQL prints it."),
)
