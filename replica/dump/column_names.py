"""Columns and tables in words: a declaration from what the stream tells, names quoted for SQL or shown as they are.

In: a column of a table map and its plan. Out: text for people, as the stream has it: plain_text.py makes it printable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.rows.tables.plan import PREPARED
from replica.rows.types.types import type_named

if TYPE_CHECKING:
    from replica.protocol.rows.column_def import ColumnDef
    from replica.rows.tables.plan import ColumnPlan

_BOTH: Final = (("VARBINARY", "VARCHAR"), ("BINARY", "CHAR"), ("TINYBLOB", "TINYTEXT"), ("MEDIUMBLOB", "MEDIUMTEXT"),
                ("LONGBLOB", "LONGTEXT"), ("BLOB", "TEXT"))  # fmt: skip


def declaration(column: ColumnDef, plan: ColumnPlan, *, unnamed: bool = False) -> str:
    """Write the declaration as in CREATE TABLE, as far as the stream tells: 'VARCHAR(20) latin1 NOT NULL'; 'VARCHAR or
    VARBINARY(80)'.
    """
    type_ = type_named(PREPARED.get(column.type, column.type), plan.data_type)
    assert type_ is not None, "only columns that are read are shown"  # noqa: S101
    words = type_.declared if type_.written is None else type_.written(column, plan)
    if unnamed and column.collation is None:
        words = next((words.replace(binary, f"{text} or {binary}") for binary, text in _BOTH if binary in words), words)
    return words + ("" if column.nullable else " NOT NULL")


def quoted(name: str) -> str:
    """Write an identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"
