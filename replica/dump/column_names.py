"""Columns and tables in words: a declaration from what the stream tells, names quoted for SQL or shown as they are.

In: a column of a table map and its plan. Out: text for people, as the stream has it: plain_text.py makes it printable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.protocol.constants import ColumnType
from replica.rows.types.types import Kind

if TYPE_CHECKING:
    from replica.protocol.column_def import ColumnDef
    from replica.rows.tables.plan import ColumnPlan

_T = ColumnType
_INTEGERS: Final = {
    _T.TINY: "TINYINT", _T.SHORT: "SMALLINT", _T.INT24: "MEDIUMINT", _T.LONG: "INT", _T.LONGLONG: "BIGINT",
}  # fmt: skip
_PLAIN: Final = {
    _T.FLOAT: "FLOAT", _T.DOUBLE: "DOUBLE", _T.YEAR: "YEAR", _T.DATE: "DATE", _T.ENUM: "ENUM", _T.SET: "SET",
    _T.GEOMETRY: "GEOMETRY", _T.JSON: "JSON", _T.TIMESTAMP: "TIMESTAMP, old format", _T.TIME: "TIME, old format",
    _T.DATETIME: "DATETIME, old format",
}  # fmt: skip
_TEMPORAL: Final = {_T.TIMESTAMP2: "TIMESTAMP", _T.DATETIME2: "DATETIME", _T.TIME2: "TIME"}
_BLOBS: Final = ("", "TINY", "", "MEDIUM", "LONG")  # by the bytes of the length
_BOTH: Final = (("VARBINARY", "VARCHAR"), ("BINARY", "CHAR"), ("TINYBLOB", "TINYTEXT"), ("MEDIUMBLOB", "MEDIUMTEXT"),
                ("LONGBLOB", "LONGTEXT"), ("BLOB", "TEXT"))  # fmt: skip
UNSIGNED: Final = frozenset({Kind.UINT8, Kind.UINT16, Kind.UINT24, Kind.UINT32, Kind.UINT64})
_TEXTS: Final = frozenset({Kind.TEXT, Kind.LATIN1, Kind.ENCODED_TEXT})
_ADDRESSES: Final = {Kind.UUID: "UUID", Kind.INET4: "INET4", Kind.INET6: "INET6"}


def declaration(column: ColumnDef, plan: ColumnPlan, *, unnamed: bool = False) -> str:
    """As in CREATE TABLE, as far as the stream tells: 'VARCHAR(20) latin1 NOT NULL'; 'VARCHAR or VARBINARY(80)'."""
    words = _type(column, plan)
    if unnamed and column.collation is None:
        words = next((words.replace(binary, f"{text} or {binary}") for binary, text in _BOTH if binary in words), words)
    return words + ("" if column.nullable else " NOT NULL")


def _type(column: ColumnDef, plan: ColumnPlan) -> str:  # noqa: PLR0911  (one a family of types)
    code = ColumnType(column.type)
    if code in _INTEGERS:
        return _INTEGERS[code] + (" UNSIGNED" if plan.kind in UNSIGNED else "")
    if code in _TEMPORAL:
        return _TEMPORAL[code] + (f"({column.fsp})" if column.fsp else "")
    if code in _PLAIN:
        return _PLAIN[code]
    if code == _T.NEWDECIMAL:
        return f"DECIMAL({column.precision},{column.scale})"
    if code == _T.BIT:
        return f"BIT({column.length})"
    if plan.kind in _ADDRESSES:
        return _ADDRESSES[plan.kind]
    compressed = " COMPRESSED" if code in (_T.BLOB_COMPRESSED, _T.VARCHAR_COMPRESSED) else ""
    text, charset = plan.kind in _TEXTS, f" {plan.charset.name}" if plan.charset else ""
    if code in (_T.BLOB, _T.BLOB_COMPRESSED):
        return f"{_BLOBS[column.length]}{'TEXT' if text else 'BLOB'}{compressed}{charset}"
    if plan.kind not in _TEXTS and plan.kind not in (Kind.BYTES, Kind.PADDED_BYTES):
        return f"VECTOR({column.length // 4})"
    length = column.length - (1 if compressed else 0)
    if plan.charset is not None:
        length //= plan.charset.max_bytes
    family = ("CHAR" if text else "BINARY") if code == _T.STRING else ("VARCHAR" if text else "VARBINARY")
    return f"{family}({length}){compressed}{charset}"


def quoted(name: str) -> str:
    """An identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"
