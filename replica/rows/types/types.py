"""What a type becomes in Arrow and in Spark: from the type table, a declaration, and the reader's policy.

In: a type by its wire code (TABLE_MAP) or by its name (information_schema). Out: a `Kind`, which both decoders
dispatch on, and the Arrow and Spark types that belong to it. Both ways lead through the same row of the table, so a
schema that was made from the catalog before the first event fits the rows that the stream brings later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from replica.errors import SchemaError
from replica.rows.types.kinds import Kind
from replica.rows.types.type_table import TYPES, TypeRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.schema.table import ColumnSchema

__all__ = [
    "AS_TEXT",
    "GEOMETRY_ARROW",
    "MAX_DECIMAL_PRECISION",
    "TYPES",
    "VECTOR_ARROW",
    "Kind",
    "OutputColumn",
    "TypeRow",
    "ValuePolicy",
    "arrow_and_spark",
    "output_column",
    "refine",
    "row_of",
]

MAX_DECIMAL_PRECISION = 38  # of Spark's DECIMAL and Arrow's decimal128; MariaDB goes to 65


@dataclass(frozen=True, slots=True)
class ValuePolicy:
    """What becomes of values that Spark's types cannot hold, and of those that it can hold in two ways.

    `invalid_dates` rules zero dates, partial dates and days that no calendar has (31 February): 'null' makes them
    NULL, 'error' stops with a ProtocolError, 'text' turns every DATE, DATETIME and TIMESTAMP column into a STRING.
    `invalid_text` rules bytes that are no character of their column's set: 'replace' puts U+FFFD in their place,
    'error' stops with a ProtocolError. Strings in Arrow are valid UTF-8 under both.
    `geometry`: 'binary' hands on the stored bytes, 'spark' makes a struct that Spark reads as GEOMETRY.
    """

    invalid_dates: Literal["null", "error", "text"] = "null"
    invalid_text: Literal["replace", "error"] = "replace"
    geometry: Literal["binary", "spark"] = "binary"


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column as Spark sees it: `arrow` is the type of its buffers, `spark` the same type in Spark's DDL."""

    name: str
    arrow: pa.DataType
    spark: str


GEOMETRY_ARROW = pa.struct([pa.field("srid", pa.int32(), nullable=False), pa.field("wkb", pa.binary(), nullable=False)])
VECTOR_ARROW = pa.list_(pa.float32())

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
    # Spark checks the SRID of GEOMETRY(n) nowhere, so the type never claims one.
    Kind.GEOMETRY: (GEOMETRY_ARROW, "GEOMETRY(ANY)"),
    Kind.VECTOR: (VECTOR_ARROW, "ARRAY<FLOAT>"),
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
    """The row's kind, narrowed by the declaration (signedness, a wide DECIMAL, a full BIT) and by the policy.

    `precision` is the digits of a DECIMAL or the bits of a BIT.
    """
    kind = row.unsigned_kind if unsigned and row.unsigned_kind is not None else row.kind
    if kind in (Kind.DECIMAL, Kind.DECIMAL_TEXT):
        return Kind.DECIMAL if precision <= MAX_DECIMAL_PRECISION else Kind.DECIMAL_TEXT
    if kind in (Kind.BIT, Kind.BIT64):
        return Kind.BIT64 if precision == 64 else Kind.BIT
    if kind == Kind.GEOMETRY and policy.geometry == "binary":
        return Kind.BYTES
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
    """The Spark side of a catalog column, before any event was seen; SchemaError for a type the table does not have."""
    kind = refine(row_of(column), unsigned=column.unsigned, precision=column.precision or 0, policy=policy)
    arrow, spark = arrow_and_spark(kind, column.precision or 0, column.scale or 0)
    return OutputColumn(column.name, arrow, spark)
