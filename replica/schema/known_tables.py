"""Known tables at one point of a stream, and the reason for each unknown one.

`KnownTables` stores definitions by (database, table): define, forget, move, distrust. `base` answers for tables without
an entry here. An entry with the database '' is valid for tables of its name in any database.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from replica.errors import SchemaError
from replica.schema.table import ColumnSchema, TableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.schema.definition.definition import Encoding, Table

TableName = tuple[str, str]
NEVER_SEEN: Final = "its CREATE TABLE is not among the statements that were read"


class Definitions(Protocol):
    """Source of table definitions by name."""

    def get(self, name: TableName) -> Table | None: ...


class KnownTables:
    """Tables known so far. `assumptions` has, by table, the text of the assumption that its definition rests on."""

    def __init__(self, base: Definitions | None = None) -> None:
        self._base = base
        self._tables: dict[TableName, Table] = {}
        self._unknown: dict[TableName, str] = {}
        self.databases: dict[str, Encoding] = {}
        self.assumptions: dict[TableName, str] = {}

    def __contains__(self, name: TableName) -> bool:
        """Return True if the table was defined here, not in the base."""
        return name in self._tables

    def get(self, name: TableName) -> Table | None:
        if name in self._tables or name in self._unknown:
            return self._tables.get(name)
        found = self._tables.get(("", name[1]))
        return self._base.get(name) if found is None and self._base is not None else found

    def reason(self, name: TableName) -> str:
        """Return the reason why a table is unknown; '' if it is known."""
        return "" if self.get(name) is not None else self._unknown.get(name, NEVER_SEEN)

    def names(self) -> list[TableName]:
        """Return the tables that were defined here."""
        return list(self._tables)

    def in_database(self, database: str) -> tuple[TableName, ...]:
        """Return the tables of a database that have an entry here, known or unknown."""
        return tuple(name for name in (*self._tables, *self._unknown) if name[0] == database)

    def define(self, name: TableName, table: Table) -> None:
        self._unknown.pop(name, None)
        self._tables[name] = table

    def distrust(self, name: TableName, reason: str) -> None:
        """Mark the table as unknown from this point of the stream on; `reason` says why."""
        self.forget(name)
        self._unknown[name] = reason

    def distrust_all(self, reason: str) -> tuple[TableName, ...]:
        names = self.names()
        for name in names:
            self.distrust(name, reason)
        return tuple(names)

    def forget(self, name: TableName) -> None:
        """Remove the entry of a table that was dropped."""
        self._tables.pop(name, None)
        self._unknown.pop(name, None)
        self.assumptions.pop(name, None)

    def copy(self, old: TableName, new: TableName) -> None:
        """Give `new` the definition of `old`, or mark it as unknown like `old`."""
        table, assumption = self.get(old), self.assumptions.get(old)
        if table is None:
            self.distrust(new, f"it comes from {'.'.join(old)}: {self.reason(old)}")
            return
        self.forget(new)
        self.define(new, table)
        if assumption is not None:
            self.assumptions[new] = assumption

    def move(self, old: TableName, new: TableName) -> None:
        if old != new:
            self.copy(old, new)
            self.forget(old)


# The JSON omits default values and has its keys in a fixed order, so equal tables give equal text. Text of another
# format, or of a newer version, is an error.


VERSION: Final = 1
_Value = TypeVar("_Value", ColumnSchema, TableSchema)


def tables_to_json(tables: Mapping[TableName, TableSchema]) -> str:
    """Return the tables as compact JSON, in the order of their names."""
    stored = [_as_dict(tables[name]) for name in sorted(tables)]
    return json.dumps({"v": VERSION, "tables": stored}, separators=(",", ":"), ensure_ascii=False)


def tables_from_json(text: str) -> dict[TableName, TableSchema]:
    """Parse the text of `tables_to_json`.

    Raises:
        SchemaError: The text is damaged, or a newer version wrote it.
    """
    try:
        value = json.loads(text)
        version = value["v"]
        tables = [_read(TableSchema, table) for table in value["tables"]] if version == VERSION else []
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SchemaError(f"the stored tables are damaged ({type(error).__name__}: {error}).") from None
    if version != VERSION:
        raise SchemaError(
            f"the stored tables have version {version}; this version reads {VERSION}.",
            hint="Upgrade spark-mariadb-binlog to the version that wrote them.",
        )
    return {(table.database, table.table): table for table in tables}


def _as_dict(value: ColumnSchema | TableSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        field_value = getattr(value, field.name)
        if field.name == "columns":
            found[field.name] = [_as_dict(column) for column in field_value]
        elif field_value != field.default:
            found[field.name] = field_value
    return found


def _read(kind: type[_Value], value: dict[str, Any]) -> _Value:
    fields: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items()}
    if kind is TableSchema:
        fields["columns"] = tuple(_read(ColumnSchema, column) for column in value["columns"])
    return kind(**fields)
