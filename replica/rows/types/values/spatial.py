"""GEOMETRY and its subtypes: the SRID, then WKB."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.arrow_arrays import array_of, validity
from replica.rows.types.entry import (
    Json,
    KindEntry,
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

GEOMETRY_ARROW: Final = pa.struct(
    [pa.field("srid", pa.int32(), nullable=False), pa.field("wkb", pa.binary(), nullable=False)]
)


def _geometries(kind: pa.StructType, rows: int, _: pa.Buffer, offsets: pa.Buffer, data: pa.Buffer) -> pa.StructArray:
    """Split consecutive SRID and WKB into two columns; a value of no bytes becomes NULL."""
    ends = np.frombuffer(offsets, np.int32, rows + 1)
    stored = np.frombuffer(data, np.uint8, int(ends[-1]))
    valid = ends[1:] > ends[:-1]
    heads = ends[:-1][valid, None] + np.arange(v.SRID_BYTES, dtype=np.int32)
    srid = np.zeros(rows, np.int32)
    srid[valid] = stored[heads].view("<i4").ravel()
    rest = np.ones(len(stored), np.bool_)
    rest[heads.ravel()] = False
    wkb_ends = ends - v.SRID_BYTES * np.concatenate(([0], np.cumsum(valid)))
    wkb = [None, pa.py_buffer(wkb_ends.astype(np.int32)), pa.py_buffer(stored[rest])]
    children = [array_of(srid), pa.Array.from_buffers(pa.binary(), rows, wkb)]
    return pa.StructArray.from_buffers(kind, rows, [validity(valid)], children=children)


KINDS = (
    KindEntry(
        kind=Kind.GEOMETRY,
        binlog=WireValue(lambda data, _: v.geometry(data), Told.NOTHING),
        arrow=GEOMETRY_ARROW,
        spark="GEOMETRY(ANY)",  # Spark does not check the SRID of GEOMETRY(n), so the type never claims one
        variant=Variant.BINARY,
        json=Json.HEX,
        sql=Sql.HEX,
        as_stored=Kind.BYTES,
        assemble=_geometries,
    ),
)
TYPES = (
    TypeEntry(
        declared="GEOMETRY and its subtypes",
        names=(
            SqlName.of("geometry"),
            SqlName.of("point"),
            SqlName.of("linestring"),
            SqlName.of("polygon"),
            SqlName.of("multipoint"),
            SqlName.of("multilinestring"),
            SqlName.of("multipolygon"),
            SqlName.of("geometrycollection"),
        ),
        binlog=WireType((ColumnType.GEOMETRY,), "4 + n"),
        result_set=ResultType.plain(ColumnType.GEOMETRY, Transcoding.COUNTED),
        key=None,
        kind=Kind.GEOMETRY,
        written=lambda *_: "GEOMETRY",
        remarks="SRID (4 bytes, little endian), then WKB; apart under `geometry=spark`.",
    ),
)
