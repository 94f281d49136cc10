"""FLOAT and DOUBLE."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import (
    Json,
    KindEntry,
    Parentheses,
    ResultType,
    Sql,
    SqlName,
    Told,
    TypeEntry,
    Variant,
    WireType,
    WireValue,
)
from replica.rows.types.kinds import Kind, Transcoding

if TYPE_CHECKING:
    from replica.rows.types.entry import ColumnFacts

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


_READ = WireValue(_read, Told.DECIMALS)

KINDS = (
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
TYPES = (
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
