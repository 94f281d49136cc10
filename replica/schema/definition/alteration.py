"""Application of one ALTER TABLE: from the `Table` before to the `Table` after.

The order is the server's (mysql_prepare_alter_table). First, columns are dropped, changed and renamed in place. Then
added and moved columns get their places, in the order of the statement. Character sets are converted last. A missing
column, or an added one that exists, is a SchemaError: the table differed from the known definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.schema.definition.column import Column, converted, with_charset
from replica.schema.definition.create import Options
from replica.schema.definition.definition import Table, column_keys, met, own_encoding, place, with_keys
from replica.schema.text.naming import column_key
from replica.schema.text.sql_tokens import ANY_VERSION

if TYPE_CHECKING:
    from replica.schema.definition.definition import ColumnItem, Encoding, Key
    from replica.schema.text.sql_tokens import Token


@dataclass(slots=True, kw_only=True)
class Alteration:
    """Changes of one ALTER TABLE.

    Names in `changed`, `renamed`, `dropped` and `defaults` are comparison keys (`key`) of the old names.
    """

    server_version: int = ANY_VERSION  # of the server that compared the names
    added: list[tuple[str | None, ColumnItem]] = field(default_factory=list)  # (old name of a changed column, column)
    changed: dict[str, ColumnItem] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, bool] = field(default_factory=dict)  # whether IF EXISTS was written
    if_exists: set[str] = field(default_factory=set)  # changed only if the column exists
    if_not_exists: set[str] = field(default_factory=set)  # added only if the column does not exist
    defaults: dict[str, tuple[Token, ...] | None] = field(default_factory=dict)  # SET DEFAULT; None: DROP DEFAULT
    keys: list[Key] = field(default_factory=list)
    dropped_keys: set[str] = field(default_factory=set)
    options: Options = field(default_factory=Options)
    convert: tuple[str | None, str | None] | None = None  # character set and collation as written
    unversioned: bool = False
    rename: tuple[str, str] | None = None
    to_table: tuple[str, str] | None = None  # CONVERT PARTITION … TO TABLE
    from_table: tuple[str, str] | None = None  # CONVERT TABLE … TO PARTITION
    unproven: list[str] = field(default_factory=list)  # actions that may change rows in addition to the definition

    def key(self, name: str) -> str:
        """Return the comparison key of a column's or index's name, by the rule of the statement's server."""
        return column_key(name, self.server_version)


def altered(table: Table, change: Alteration, default: Encoding) -> Table:
    """Return the table after the statement; `default` is the database's encoding."""
    encoding = change.options.encoding(default, table.encoding)
    if change.convert is not None:
        encoding = own_encoding(*change.convert, default) or default
    columns, names = _kept(table, change, encoding)
    columns = _placed(table, columns, change, encoding)
    if change.convert is not None:
        charset, collation = encoding
        if charset is None:
            raise SchemaError("The character set that the table is converted to is not known.")
        # A column that is declared in the same statement keeps its size, and CONVERT overrides its character set.
        declared_here = {change.key(item.column.name) for _, item in (*change.added, *change.changed.items())}
        columns = [
            (with_charset if change.key(column.name) in declared_here else converted)(column, charset, collation)
            for column in columns
        ]
    declared = [*change.changed.values(), *(item for old, item in change.added if old is None)]
    keys = [*_keys(table, change, names), *change.keys, *column_keys(declared)]
    # ADD COLUMN IF NOT EXISTS … PRIMARY KEY keeps an existing key.
    primary = next((key for key in keys if key.primary), None)
    keys = [key for key in keys if not key.primary or key is primary]
    versioned = (table.versioned or change.options.versioned) and not change.unversioned
    return with_keys(columns, keys, encoding, versioned=versioned, server_version=change.server_version)


def _kept(table: Table, change: Alteration, encoding: Encoding) -> tuple[list[Column], dict[str, str]]:
    """Return the remaining columns in their old order, and the new name of each by the key of its old name."""
    columns, names = [], {}
    for column in table.columns:
        old = change.key(column.name)
        if old in change.dropped:
            continue
        if old in change.changed:
            column = met(change.changed[old], encoding)  # noqa: PLW2901
        if old in change.renamed:
            column = replace(column, name=change.renamed[old])  # noqa: PLW2901
        columns.append(column)
        names[old] = column.name
    known = {change.key(column.name) for column in table.columns}
    missing = {*change.changed, *change.renamed, *(name for name, optional in change.dropped.items() if not optional)}
    missing -= known | change.if_exists
    if missing:
        raise SchemaError(f"The table has no column {', '.join(sorted(missing))}.")
    return columns, names


def _placed(table: Table, columns: list[Column], change: Alteration, encoding: Encoding) -> list[Column]:
    """Return the columns with added and moved ones at their places."""
    known = {change.key(column.name) for column in table.columns}
    for old, item in change.added:
        name = change.key(item.column.name)
        if old is None:
            if name in change.if_not_exists and name in known:
                continue
            known.add(name)
            column = met(item, encoding)
        elif old in known:
            column = columns.pop(place(columns, item.column.name, change.server_version))
        else:
            continue  # MODIFY COLUMN IF EXISTS
        if item.position is None:
            columns.append(column)
        else:
            columns.insert(place(columns, item.position, change.server_version) + 1 if item.position else 0, column)
    return columns


def _keys(table: Table, change: Alteration, names: dict[str, str]) -> list[Key]:
    """Return the remaining old keys, with the new names of their columns."""
    dropped = {change.key(name) for name in change.dropped_keys}
    kept = []
    for key in table.keys:
        parts = tuple((names[change.key(name)], prefix) for name, prefix in key.parts if change.key(name) in names)
        if parts and change.key(key.name) not in dropped:
            kept.append(replace(key, parts=parts))
    return kept
