"""ENUM and SET: numbers on the wire, labels in the output."""

from __future__ import annotations

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import (
    Parentheses,
    ResultType,
    Sql,
    SqlName,
    Told,
    TypeEntry,
    WireType,
    WireValue,
    printed,
)
from replica.rows.types.kinds import KeyForm, Kind, Transcoding

KINDS = (
    printed(Kind.ENUM, WireValue(lambda data, column: v.enum(data, column.labels), Told.LABELS), Sql.CHARACTERS),
    printed(Kind.SET, WireValue(lambda data, column: v.set_(data, column.labels), Told.LABELS), Sql.CHARACTERS),
)
# The query asks for the number, because a label is ambiguous: several labels can be equal by the collation, and '' is
# also the error value. The server answers the cast with LONG if all labels are short (10.5 to 11.8).
_NUMBER = ResultType(
    "CAST({c} AS UNSIGNED)", (ColumnType.LONGLONG, ColumnType.LONG), ColumnType.STRING, Transcoding.NUMBER
)
TYPES = (
    TypeEntry(
        declared="ENUM",
        names=(SqlName.of("enum", Parentheses.LABELS),),
        binlog=WireType((ColumnType.ENUM,), "1-2"),
        result_set=_NUMBER,
        key=KeyForm.UNSIGNED,
        kind=Kind.ENUM,
        remarks="The label; '' for the error value 0.",
    ),
    TypeEntry(
        declared="SET",
        names=(SqlName.of("set", Parentheses.LABELS),),
        binlog=WireType((ColumnType.SET,), "1-8"),
        result_set=_NUMBER,
        key=KeyForm.UNSIGNED,
        kind=Kind.SET,
        remarks="Labels in the order of the declaration, comma between.",
    ),
)
