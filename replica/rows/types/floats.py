"""FLOAT and DOUBLE."""

from __future__ import annotations

import pyarrow as pa

from replica.protocol import values as v
from replica.protocol.constants import ColumnType
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

_READ = WireValue(lambda data, _: v.real(data), Told.NOTHING)
_EDGES = "Keeps -0.0 and denormals."

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
