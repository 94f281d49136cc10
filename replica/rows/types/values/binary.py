"""BINARY, VARBINARY and BLOB types, and types that are logged as bytes: UUID, INET, GEOMETRY, VECTOR, MySQL's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.arrow_arrays import array_of, validity
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
    WireType,
    WireValue,
    printed,
)
from replica.rows.types.kinds import KeyForm, Kind, Transcoding
from replica.rows.types.values.text import INFLATED, counted, sized

if TYPE_CHECKING:
    from collections.abc import Callable


def _kind(kind: Kind, binlog: WireValue) -> KindEntry:
    return KindEntry(
        kind=kind,
        binlog=binlog,
        arrow=pa.binary(),
        spark="BINARY",
        variant=Variant.BINARY,
        json=Json.HEX,
        sql=Sql.HEX,
    )


BINARY_KINDS = (
    _kind(Kind.OPAQUE, WireValue(lambda data, _: data, KernelFacts.NOTHING)),
    _kind(Kind.BYTES, WireValue(lambda data, _: data, KernelFacts.NOTHING)),
    _kind(Kind.PADDED_BYTES, WireValue(lambda data, column: v.padded(data, column.length), KernelFacts.LENGTH)),
)

BINARY_TYPES = (
    TypeEntry(
        declared="BINARY",
        names=(SqlName.of("binary", Parentheses.LENGTH_OR_1, unit=1),),
        binlog=WireType((ColumnType.STRING,), "1 + n"),
        result_set=ResultType.plain(ColumnType.STRING, Transcoding.TRIMMED),
        key=KeyForm.PADDED,
        kind=Kind.PADDED_BYTES,
        written=lambda column, plan: counted("BINARY", column, plan),
        remarks="Padded with 0x00 to its length.",
    ),
    TypeEntry(
        declared="VARBINARY",
        names=(SqlName.of("varbinary", Parentheses.LENGTH, unit=1),),
        binlog=WireType((ColumnType.VARCHAR,), "1-2 + n"),
        result_set=ResultType.plain(ColumnType.VAR_STRING, Transcoding.COUNTED, ColumnType.VARCHAR),
        key=KeyForm.BYTES,
        kind=Kind.BYTES,
        written=lambda column, plan: counted("VARBINARY", column, plan),
    ),
    TypeEntry(
        declared="TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB",
        names=(
            SqlName.of("tinyblob", octets=(1 << 8) - 1),
            SqlName.of("blob", Parentheses.SIZE, octets=(1 << 16) - 1),
            SqlName.of("mediumblob", octets=(1 << 24) - 1),
            SqlName.of("longblob", octets=(1 << 32) - 1),
        ),
        binlog=WireType((ColumnType.BLOB,), "1-4 + n"),
        result_set=ResultType.plain(ColumnType.BLOB, Transcoding.COUNTED),
        key=None,
        kind=Kind.BYTES,
        written=lambda column, plan: sized("BLOB", column, plan),
    ),
    TypeEntry(
        declared="VARBINARY, BLOB types COMPRESSED",
        names=(),
        binlog=WireType((ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED), "1-4 + n"),
        result_set=None,
        key=None,
        kind=Kind.BYTES,
        written=lambda column, plan: counted("VARBINARY", column, plan),
        remarks=INFLATED,
    ),
)


def _address_kind(kind: Kind, read: Callable[[bytes], Any]) -> KindEntry:
    return printed(kind, WireValue(lambda data, _: read(data), KernelFacts.LENGTH))


# Every version from 10.5 to 11.8 that has the type answers this cast with the stored bytes.
_AS_BYTES = ResultType("CAST({c} AS BINARY({n}))", (ColumnType.STRING,), ColumnType.STRING, Transcoding.TRIMMED)


def _type(sql_name: str, kind: Kind, length: int, key: KeyForm) -> TypeEntry:
    return TypeEntry(
        declared=sql_name,
        names=(SqlName.of(sql_name.lower(), logged=length),),
        binlog=WireType((ColumnType.STRING,), f"1 + 0-{length}"),
        result_set=_AS_BYTES,
        key=key,
        kind=kind,
        remarks="Known from the catalog or the DDL only, else BINARY.",
    )


ADDRESS_KINDS = (
    _address_kind(Kind.UUID, v.uuid),
    _address_kind(Kind.INET4, v.inet4),
    _address_kind(Kind.INET6, v.inet6),
)

ADDRESS_TYPES = (
    _type("UUID", Kind.UUID, 16, KeyForm.UUID),
    _type("INET4", Kind.INET4, 4, KeyForm.PADDED),
    _type("INET6", Kind.INET6, 16, KeyForm.PADDED),
)

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


SPATIAL_KINDS = (
    KindEntry(
        kind=Kind.GEOMETRY,
        binlog=WireValue(lambda data, _: v.geometry(data), KernelFacts.NOTHING),
        arrow=GEOMETRY_ARROW,
        spark="GEOMETRY(ANY)",  # Spark does not check the SRID of GEOMETRY(n), so the type never claims one
        variant=Variant.BINARY,
        json=Json.HEX,
        sql=Sql.HEX,
        as_stored=Kind.BYTES,
        assemble=_geometries,
    ),
)

SPATIAL_TYPES = (
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
        remarks="SRID (4 bytes, little endian), then WKB; two fields under `geometry=spark`.",
    ),
)

FLOAT_BYTES: Final = 4  # of a component


def _vectors(kind: pa.ListType, rows: int, valid: pa.Buffer, offsets: pa.Buffer, data: pa.Buffer) -> pa.ListArray:
    """Wrap the bytes of float32 components as lists, without a copy of the numbers."""
    items = np.frombuffer(offsets, np.int32, rows + 1) // FLOAT_BYTES
    floats = pa.Array.from_buffers(pa.float32(), int(items[-1]), [None, data])
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(items)], children=[floats])


VECTOR_KINDS = (
    KindEntry(
        kind=Kind.VECTOR,
        binlog=WireValue(lambda data, _: v.vector(data), KernelFacts.NOTHING),
        arrow=pa.list_(pa.float32()),
        spark="ARRAY<FLOAT>",
        variant=Variant.FLOATS,
        json=Json.NUMBERS,
        sql=Sql.HEX,
        assemble=_vectors,
    ),
)

VECTOR_TYPES = (
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

JSON_KINDS: tuple[KindEntry, ...] = ()

JSON_TYPES = (
    TypeEntry(
        declared="JSON of MySQL",
        names=(SqlName("json", keywords=()),),  # JSON in DDL is a synonym of LONGTEXT, as in MariaDB
        binlog=WireType((ColumnType.JSON,), "1-4 + n"),
        result_set=None,
        key=None,
        kind=Kind.TEXT,
        written=lambda *_: "JSON",
        remarks="As MySQL prints it.",
    ),
)

# The order decides which of the types that share a code is taken without a catalog (types.py).
KINDS: Final = (*BINARY_KINDS, *SPATIAL_KINDS, *ADDRESS_KINDS, *VECTOR_KINDS, *JSON_KINDS)
TYPES: Final = (*BINARY_TYPES, *SPATIAL_TYPES, *ADDRESS_TYPES, *VECTOR_TYPES, *JSON_TYPES)
