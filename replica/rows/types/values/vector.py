"""VECTOR: consecutive numbers of four bytes. The binlog logs it as VARBINARY."""

from __future__ import annotations

from typing import Final

import numpy as np
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

FLOAT_BYTES: Final = 4  # of a component


def _vectors(kind: pa.ListType, rows: int, valid: pa.Buffer, offsets: pa.Buffer, data: pa.Buffer) -> pa.ListArray:
    """Wrap the bytes of float32 components as lists, without a copy of the numbers."""
    items = np.frombuffer(offsets, np.int32, rows + 1) // FLOAT_BYTES
    floats = pa.Array.from_buffers(pa.float32(), int(items[-1]), [None, data])
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(items)], children=[floats])


KINDS = (
    KindEntry(
        kind=Kind.VECTOR,
        binlog=WireValue(lambda data, _: v.vector(data), Told.NOTHING),
        arrow=pa.list_(pa.float32()),
        spark="ARRAY<FLOAT>",
        variant=Variant.FLOATS,
        json=Json.NUMBERS,
        sql=Sql.HEX,
        assemble=_vectors,
    ),
)
TYPES = (
    TypeEntry(
        declared="VECTOR(n)",
        names=(SqlName.of("vector", Parentheses.LENGTH, unit=FLOAT_BYTES),),
        binlog=WireType((ColumnType.VARCHAR,), "1-2 + 4n"),
        result_set=ResultType.plain(ColumnType.VAR_STRING, Transcoding.COUNTED, ColumnType.VARCHAR),
        key=None,
        kind=Kind.VECTOR,
        written=lambda column, _: f"VECTOR({column.length // FLOAT_BYTES})",
        remarks="Known from the catalog or the DDL only, else VARBINARY.",
    ),
)
