"""CHAR, VARCHAR and the TEXT types in every character set, ENUM and SET.

The registry gives a text type the kind TEXT. The plan of a column replaces it with LATIN1 or ENCODED_TEXT if the
character set is not UTF-8 (`kind_of_charset`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import (
    KernelFacts,
    Parentheses,
    ResultType,
    Sql,
    SqlName,
    TypeEntry,
    WireType,
    WireValue,
    printed,
)
from replica.rows.types.kinds import KeyForm, Kind, Transcoding

if TYPE_CHECKING:
    from replica.protocol.charset import Charset
    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.types.entry import ColumnFacts

BLOB_SIZES: Final = ("TINY", "", "MEDIUM", "LONG")  # by the size of the length prefix, 1 to 4 bytes
INFLATED: Final = "The value itself, inflated. Bytes that do not inflate are an error."
_COMPRESSED: Final = (ColumnType.VARCHAR_COMPRESSED, ColumnType.BLOB_COMPRESSED)


def kind_of_charset(charset: Charset) -> Kind:
    """Return the kind of text in a character set."""
    if charset.is_utf8:
        return Kind.TEXT
    return Kind.LATIN1 if charset.name == "latin1" else Kind.ENCODED_TEXT


def _read(data: bytes, column: ColumnFacts) -> str:
    assert column.charset is not None  # noqa: S101  (the plan gives every text column one)
    return column.charset.decode(data)


TEXT_KINDS = (
    printed(Kind.TEXT, WireValue(_read, KernelFacts.TEXT), Sql.CHARACTERS),
    printed(Kind.LATIN1, WireValue(_read, KernelFacts.CHARSET), Sql.CHARACTERS),
    printed(Kind.ENCODED_TEXT, WireValue(_read, KernelFacts.CHARSET), Sql.CHARACTERS),
)


def with_charset(sql_name: str, column: ColumnDef, plan: ColumnFacts) -> str:
    """Return a type's name with its text attributes: 'TEXT COMPRESSED latin1'."""
    compressed = " COMPRESSED" if column.type in _COMPRESSED else ""
    return sql_name + compressed + (f" {plan.charset.name}" if plan.charset else "")


def counted(sql_name: str, column: ColumnDef, plan: ColumnFacts) -> str:
    """Return a type's name with its length and text attributes: 'VARCHAR(20) latin1'.

    The length is in characters for text, in bytes otherwise.
    """
    length = column.length - (1 if column.type in _COMPRESSED else 0)  # the header byte of a compressed value
    if plan.charset is not None:
        length //= plan.charset.max_bytes
    return with_charset(f"{sql_name}({length})", column, plan)


def sized(sql_name: str, column: ColumnDef, plan: ColumnFacts) -> str:
    """Return the name of a BLOB or TEXT type, whose size follows from its length prefix: 'MEDIUMTEXT latin1'."""
    return with_charset(f"{BLOB_SIZES[min(column.length, 4) - 1]}{sql_name}", column, plan)


TEXT_TYPES = (
    TypeEntry(
        declared="CHAR",
        names=(SqlName.of("char", Parentheses.LENGTH_OR_1, "CHARACTER", as_bytes="binary"),),
        binlog=WireType((ColumnType.STRING,), "1-2 + n"),
        result_set=ResultType.plain(ColumnType.STRING, Transcoding.COUNTED),
        key=KeyForm.TEXT,
        kind=Kind.TEXT,
        written=lambda column, plan: counted("CHAR", column, plan),
        remarks="Without pad spaces, as SELECT gives it.",
    ),
    TypeEntry(
        declared="VARCHAR",
        names=(SqlName.of("varchar", Parentheses.LENGTH, "VARCHARACTER", as_bytes="varbinary"),),
        binlog=WireType((ColumnType.VARCHAR,), "1-2 + n"),
        result_set=ResultType.plain(ColumnType.VAR_STRING, Transcoding.COUNTED, ColumnType.VARCHAR),
        key=KeyForm.TEXT,
        kind=Kind.TEXT,
        written=lambda column, plan: counted("VARCHAR", column, plan),
        remarks="Trailing spaces kept.",
    ),
    TypeEntry(
        declared="TINYTEXT, TEXT, MEDIUMTEXT, LONGTEXT, JSON",
        names=(
            SqlName.of("tinytext", octets=(1 << 8) - 1, as_bytes="tinyblob"),
            SqlName.of("text", Parentheses.SIZE, octets=(1 << 16) - 1, as_bytes="blob"),
            SqlName.of("mediumtext", octets=(1 << 24) - 1, as_bytes="mediumblob"),
            SqlName.of("longtext", octets=(1 << 32) - 1, as_bytes="longblob"),
        ),
        binlog=WireType((ColumnType.BLOB,), "1-4 + n"),
        result_set=ResultType.plain(ColumnType.BLOB, Transcoding.COUNTED),
        key=None,
        kind=Kind.TEXT,
        written=lambda column, plan: sized("TEXT", column, plan),
        remarks="JSON is text as it was written.",
    ),
    TypeEntry(
        declared="VARCHAR, TEXT types COMPRESSED",
        names=(),
        binlog=WireType(_COMPRESSED, "1-4 + n"),
        result_set=None,
        key=None,
        kind=Kind.TEXT,
        written=lambda column, plan: counted("VARCHAR", column, plan),
        remarks=INFLATED,
    ),
)

LABEL_KINDS = (
    printed(Kind.ENUM, WireValue(lambda data, column: v.enum(data, column.labels), KernelFacts.LABELS), Sql.CHARACTERS),
    printed(Kind.SET, WireValue(lambda data, column: v.set_(data, column.labels), KernelFacts.LABELS), Sql.CHARACTERS),
)

# The query asks for the number, because a label is ambiguous: several labels can be equal by the collation, and '' is
# also the error value. The server answers the cast with LONG if all labels are short (10.5 to 11.8).
_NUMBER = ResultType(
    "CAST({c} AS UNSIGNED)", (ColumnType.LONGLONG, ColumnType.LONG), ColumnType.STRING, Transcoding.NUMBER
)

LABEL_TYPES = (
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

# The order decides which of the types that share a code is taken without a catalog (types.py).
KINDS: Final = (*LABEL_KINDS, *TEXT_KINDS)
TYPES: Final = (*LABEL_TYPES, *TEXT_TYPES)
