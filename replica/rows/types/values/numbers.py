"""Numbers: integers, BIT, YEAR, FLOAT, DOUBLE, DECIMAL."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import (
    Json,
    KernelFacts,
    KindEntry,
    Parentheses,
    ResultType,
    Sql,
    SqlName,
    TypeEntry,
    Variant,
    Wide,
    Widens,
    WireType,
    WireValue,
    printed,
)
from replica.rows.types.kinds import KeyForm, Kind, Transcoding

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.types.entry import ColumnFacts

_SIGNED = WireValue(lambda data, _: v.integer(data, signed=True), KernelFacts.NOTHING)
_UNSIGNED = WireValue(lambda data, _: v.integer(data, signed=False), KernelFacts.NOTHING)
_BIT = WireValue(lambda data, _: v.bit(data), KernelFacts.NOTHING)
_YEAR = WireValue(lambda data, _: v.year(data), KernelFacts.NOTHING)
_INT8, _INT16, _INT32, _INT64 = (
    (pa.int8(), "TINYINT"),
    (pa.int16(), "SMALLINT"),
    (pa.int32(), "INT"),
    (pa.int64(), "BIGINT"),
)
_DECIMAL20 = (pa.decimal128(20, 0), "DECIMAL(20,0)")  # for 64 unsigned bits
_BITS = "The bits as a number."


def _kind(
    kind: Kind,
    binlog: WireValue,
    out: tuple[pa.DataType, str],
    widens: Widens = Widens.NEVER,
    *,
    variant: Variant = Variant.INTEGER,
    json: Json = Json.NUMBER,
) -> KindEntry:
    arrow, spark = out
    return KindEntry(
        kind=kind, binlog=binlog, arrow=arrow, spark=spark, variant=variant, json=json, sql=Sql.NUMBER, widens=widens
    )


INTEGER_KINDS = (
    _kind(Kind.INT8, _SIGNED, _INT8, Widens.SIGNED),
    _kind(Kind.UINT8, _UNSIGNED, _INT16, Widens.UNSIGNED),
    _kind(Kind.INT16, _SIGNED, _INT16, Widens.SIGNED),
    _kind(Kind.UINT16, _UNSIGNED, _INT32, Widens.UNSIGNED),
    _kind(Kind.INT24, _SIGNED, _INT32, Widens.SIGNED),
    _kind(Kind.UINT24, _UNSIGNED, _INT32, Widens.UNSIGNED),
    _kind(Kind.INT32, _SIGNED, _INT32, Widens.SIGNED),
    _kind(Kind.UINT32, _UNSIGNED, _INT64, Widens.UNSIGNED),
    _kind(Kind.INT64, _SIGNED, _INT64, json=Json.LARGE),
    _kind(Kind.UINT64, _UNSIGNED, _DECIMAL20, variant=Variant.UNSIGNED, json=Json.LARGE),
    _kind(Kind.BIT, _BIT, _INT64, json=Json.LARGE),
    _kind(Kind.BIT64, _BIT, _DECIMAL20, variant=Variant.UNSIGNED, json=Json.LARGE),
    _kind(Kind.YEAR, _YEAR, _INT32, json=Json.YEAR),
)


def _written(sql_name: str, unsigned: Kind) -> Callable[[ColumnDef, ColumnFacts], str]:
    return lambda _, plan: f"{sql_name} UNSIGNED" if plan.kind == unsigned else sql_name


def _integer(name: SqlName, code: ColumnType, width: int, signed: Kind, unsigned: Kind, *, also: str = "") -> TypeEntry:
    sql_name = name.name.upper()
    return TypeEntry(
        declared=sql_name + also,
        names=(name,),
        binlog=WireType((code,), str(width)),
        result_set=ResultType.plain(code, Transcoding.NUMBER),
        key=KeyForm.SIGNED,
        kind=signed,
        unsigned=unsigned,
        written=_written(sql_name, unsigned),
    )


_DIGITS = Parentheses.DIGITS

INTEGER_TYPES = (
    _integer(
        SqlName.of("tinyint", _DIGITS, "INT1", width=(4, 3)), ColumnType.TINY, 1, Kind.INT8, Kind.UINT8, also=", BOOL"
    ),
    _integer(SqlName.of("smallint", _DIGITS, "INT2", width=(6, 5)), ColumnType.SHORT, 2, Kind.INT16, Kind.UINT16),
    _integer(
        SqlName.of("mediumint", _DIGITS, "INT3", "MIDDLEINT", width=(9, 8)),
        ColumnType.INT24,
        3,
        Kind.INT24,
        Kind.UINT24,
    ),
    _integer(
        SqlName.of("int", _DIGITS, "INTEGER", "INT4", width=(11, 10)), ColumnType.LONG, 4, Kind.INT32, Kind.UINT32
    ),
    _integer(SqlName.of("bigint", _DIGITS, "INT8", width=(20, 20)), ColumnType.LONGLONG, 8, Kind.INT64, Kind.UINT64),
    TypeEntry(
        declared="BIT(1-63)",
        names=(SqlName.of("bit", Parentheses.LENGTH_OR_1),),
        binlog=WireType((ColumnType.BIT,), "1-8, big endian"),
        result_set=ResultType.plain(ColumnType.BIT, Transcoding.BITS),
        key=KeyForm.STORED,
        kind=Kind.BIT,
        wide=Wide(63, Kind.BIT64, "BIT(64)", "8, big endian", _BITS),
        written=lambda column, _: f"BIT({column.length})",
        remarks=_BITS,
    ),
    TypeEntry(
        declared="YEAR",
        names=(SqlName.of("year", Parentheses.YEAR),),
        binlog=WireType((ColumnType.YEAR,), "1"),
        result_set=ResultType.plain(ColumnType.YEAR, Transcoding.YEAR),
        key=KeyForm.UNSIGNED,
        kind=Kind.YEAR,
        remarks="0000 is 0.",
    ),
)

MOST_DECIMALS: Final = 22
"""Largest number of digits to round to. Larger powers of ten are inexact, so such a value keeps its stored digits."""
_DECLARED: Final = re.compile(r"(?:float|double)\(\d+,(\d+)\)")
_EDGES = "Keeps -0.0 and denormals. (M,D): rounded to D digits."


def decimals_of(column_type: str) -> int | None:
    """Return the digits after the point that SELECT rounds a column to: D of `double(M,D)`; None if it does not round.

    Stored values may have more digits: an ALTER that adds (M,D) may keep them (Field_real in sql/field.cc).
    """
    found = _DECLARED.match(column_type.lower())
    return int(found[1]) if found and int(found[1]) <= MOST_DECIMALS else None


def _read(data: bytes, column: ColumnFacts) -> float:
    value = v.real(data)
    if column.decimals is None:
        return value
    shown = round(value, column.decimals)
    return v.real(struct.pack("<f", shown)) if len(data) == 4 else shown


_READ = WireValue(_read, KernelFacts.DECIMALS)

FLOAT_KINDS = (
    KindEntry(
        kind=Kind.FLOAT,
        binlog=_READ,
        arrow=pa.float32(),
        spark="FLOAT",
        variant=Variant.FLOAT,
        json=Json.NUMBER,
        sql=Sql.NUMBER,
    ),
    KindEntry(
        kind=Kind.DOUBLE,
        binlog=_READ,
        arrow=pa.float64(),
        spark="DOUBLE",
        variant=Variant.DOUBLE,
        json=Json.NUMBER,
        sql=Sql.NUMBER,
    ),
)

FLOAT_TYPES = (
    TypeEntry(
        declared="FLOAT",
        names=(SqlName.of("float", Parentheses.FLOAT, "FLOAT4"),),
        binlog=WireType((ColumnType.FLOAT,), "4"),
        result_set=ResultType.plain(ColumnType.FLOAT, Transcoding.NUMBER),
        key=None,
        kind=Kind.FLOAT,
        remarks=_EDGES,
    ),
    TypeEntry(
        declared="DOUBLE",
        names=(SqlName.of("double", Parentheses.DIGITS, "FLOAT8"),),
        binlog=WireType((ColumnType.DOUBLE,), "8"),
        result_set=ResultType.plain(ColumnType.DOUBLE, Transcoding.NUMBER),
        key=None,
        kind=Kind.DOUBLE,
        remarks=_EDGES,
    ),
)

MAX_DECIMAL_PRECISION: Final = 38  # of Spark's DECIMAL and Arrow's decimal128; MariaDB allows 65


def _text(data: bytes, column: ColumnFacts) -> str:
    return f"{v.decimal(data, column.precision, column.scale):f}"


DECIMAL_KINDS = (
    KindEntry(
        kind=Kind.DECIMAL,
        binlog=WireValue(lambda data, column: v.decimal(data, column.precision, column.scale), KernelFacts.DIGITS),
        arrow=pa.decimal128,
        spark="DECIMAL({p},{s})",
        variant=Variant.DECIMAL,
        json=Json.TEXT,
        sql=Sql.NUMBER,
        widens=Widens.DIGITS,
    ),
    printed(Kind.DECIMAL_TEXT, WireValue(_text, KernelFacts.DIGITS)),
)

DECIMAL_TYPES = (
    TypeEntry(
        declared="DECIMAL(p≤38, s)",
        names=(SqlName.of("decimal", Parentheses.PRECISION, "DEC", "NUMERIC", "FIXED"),),
        binlog=WireType((ColumnType.NEWDECIMAL,), "1-17"),
        result_set=ResultType.plain(ColumnType.NEWDECIMAL, Transcoding.DECIMAL),
        key=KeyForm.STORED,
        kind=Kind.DECIMAL,
        wide=Wide(
            MAX_DECIMAL_PRECISION,
            Kind.DECIMAL_TEXT,
            "DECIMAL(p>38, s)",
            "18-30",
            "Exact decimal text with the scale's zeros, as SELECT prints it.",
        ),
        written=lambda column, _: f"DECIMAL({column.precision},{column.scale})",
        remarks="Exact, with the scale's zeros.",
    ),
)

# The order decides which of the types that share a code is taken without a catalog (types.py).
KINDS: Final = (*INTEGER_KINDS, *FLOAT_KINDS, *DECIMAL_KINDS)
TYPES: Final = (*INTEGER_TYPES, *FLOAT_TYPES, *DECIMAL_TYPES)
