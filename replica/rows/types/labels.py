"""ENUM and SET: numbers on the wire, labels for whoever reads them."""

from __future__ import annotations

import pyarrow as pa

from replica.protocol import values as v
from replica.protocol.constants import ColumnType
from replica.rows.types.entry import (
    Json,
    KindEntry,
    Parentheses,
    Sql,
    SqlName,
    Told,
    TypeEntry,
    Variant,
    Widens,
    WireType,
    WireValue,
)
from replica.rows.types.kinds import Kind


def _kind(kind: Kind, binlog: WireValue) -> KindEntry:
    return KindEntry(
        kind=kind,
        binlog=binlog,
        arrow=pa.string(),
        spark="STRING",
        variant=Variant.TEXT,
        json=Json.TEXT,
        sql=Sql.CHARACTERS,
        widens=Widens.NEVER,
    )


KINDS = (
    _kind(Kind.ENUM, WireValue(lambda data, column: v.enum(data, column.labels), Told.LABELS)),
    _kind(Kind.SET, WireValue(lambda data, column: v.set_(data, column.labels), Told.LABELS)),
)
TYPES = (
    TypeEntry(
        declared="ENUM",
        names=(SqlName.of("enum", Parentheses.LABELS),),
        binlog=WireType((ColumnType.ENUM,), "1-2"),
        kind=Kind.ENUM,
        written=lambda *_: "ENUM",
        remarks="The label; '' for the error value 0.",
    ),
    TypeEntry(
        declared="SET",
        names=(SqlName.of("set", Parentheses.LABELS),),
        binlog=WireType((ColumnType.SET,), "1-8"),
        kind=Kind.SET,
        written=lambda *_: "SET",
        remarks="Labels in the order of the declaration, comma between.",
    ),
)
