"""Statements of Delta tables: what makes one and what changes its columns.

In: the name of a table as SQL takes it, columns, comments and properties. Out: the statements, whose names and texts
`sql_text.py` writes. Delta's typed builder does the same for tables of two-part names alone: no folder, no catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.writers.target_format import (
    AddColumns,
    DropColumns,
    RenameColumn,
    SetType,
)
from streaming_source.queries.sql_text import identifier, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.ruling.target_columns import TargetColumn


def create_or_replace(table: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> str:
    """Return the statement that makes an empty table, also in the place of one that is there."""
    about = f"{_comment(comment)} {_properties(properties)}"
    return f"CREATE OR REPLACE TABLE {table} ({_listed(columns)}) USING delta{about}"


def create_if_absent(table: str, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> str:
    """Return the statement that makes an empty table where there is none."""
    return f"CREATE TABLE IF NOT EXISTS {table} ({_listed(columns)}) USING delta {_properties(properties)}"


def set_properties(table: str, properties: Mapping[str, str]) -> str:
    """Return the statement that sets properties of a table."""
    return f"ALTER TABLE {table} SET {_properties(properties)}"


def altered(table: str, action: TargetAction) -> str:
    """Return the statement that carries out an action."""
    match action:
        case AddColumns():
            change = f"ADD COLUMNS ({', '.join(map(_any_value, action.columns))})"
        case DropColumns():
            change = f"DROP COLUMNS ({', '.join(map(identifier, action.names))})"
        case RenameColumn():
            change = f"RENAME COLUMN {identifier(action.old)} TO {identifier(action.new)}"
        case SetType():
            change = f"ALTER COLUMN {identifier(action.name)} TYPE {action.type}"
        case _:
            change = f"ALTER COLUMN {identifier(action.name)} DROP NOT NULL"
    return f"ALTER TABLE {table} {change}"


def _listed(columns: Iterable[TargetColumn]) -> str:
    return ", ".join(
        f"{identifier(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}{_comment(column.comment)}"
        for column in columns
    )


def _any_value(column: TargetColumn) -> str:
    return f"{identifier(column.name)} {column.type}{_comment(column.comment)}"


def _comment(comment: str) -> str:
    return f" COMMENT {literal(comment)}" if comment else ""


def _properties(properties: Mapping[str, str]) -> str:
    return f"TBLPROPERTIES ({', '.join(f'{literal(name)} = {literal(value)}' for name, value in properties.items())})"
