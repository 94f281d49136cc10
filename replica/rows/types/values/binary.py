"""BINARY, VARBINARY and the BLOB types, and the kind of values that are skipped."""

from __future__ import annotations

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
from replica.rows.types.kinds import KeyForm, Kind, Transcoding
from replica.rows.types.values.text import INFLATED, counted, sized


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


KINDS = (
    _kind(Kind.OPAQUE, WireValue(lambda data, _: data, Told.NOTHING)),
    _kind(Kind.BYTES, WireValue(lambda data, _: data, Told.NOTHING)),
    _kind(Kind.PADDED_BYTES, WireValue(lambda data, column: v.padded(data, column.length), Told.LENGTH)),
)
TYPES = (
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
