"""The tables that are known at one point of a stream, and for those that are not, why.

Plain bookkeeping by (database, table): define, forget, move, distrust. Nothing is read or decided here. `base` is asked
for tables of which nothing was said here; a table whose database is '' stands for the tables of its name in any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from replica.schema.definition.definition import Encoding, Table

TableName = tuple[str, str]
NEVER_SEEN: Final = "its CREATE TABLE is not among the statements that were read"


class Definitions(Protocol):
    """A source of table definitions by name."""

    def get(self, name: TableName) -> Table | None: ...


class KnownTables:
    """The tables known so far. `assumptions`: what was taken for granted of a table, in words."""

    def __init__(self, base: Definitions | None = None) -> None:
        self._base = base
        self._tables: dict[TableName, Table] = {}
        self._unknown: dict[TableName, str] = {}
        self.databases: dict[str, Encoding] = {}
        self.assumptions: dict[TableName, str] = {}

    def __contains__(self, name: TableName) -> bool:
        """Tell whether the table was defined here, not in the base."""
        return name in self._tables

    def get(self, name: TableName) -> Table | None:
        if name in self._tables or name in self._unknown:
            return self._tables.get(name)
        found = self._tables.get(("", name[1]))
        return self._base.get(name) if found is None and self._base is not None else found

    def reason(self, name: TableName) -> str:
        """Return the reason why a table is not known; '' if it is."""
        return "" if self.get(name) is not None else self._unknown.get(name, NEVER_SEEN)

    def names(self) -> list[TableName]:
        """Return the tables that were defined here."""
        return list(self._tables)

    def in_database(self, database: str) -> tuple[TableName, ...]:
        """Return the tables of a database of which anything was said here."""
        return tuple(name for name in (*self._tables, *self._unknown) if name[0] == database)

    def define(self, name: TableName, table: Table) -> None:
        self._unknown.pop(name, None)
        self._tables[name] = table

    def distrust(self, name: TableName, reason: str) -> None:
        """Treat the table as unknown from here on."""
        self.forget(name)
        self._unknown[name] = reason

    def distrust_all(self, reason: str) -> tuple[TableName, ...]:
        names = self.names()
        for name in names:
            self.distrust(name, reason)
        return tuple(names)

    def forget(self, name: TableName) -> None:
        """Forget a table that is no more: nothing is said of it."""
        self._tables.pop(name, None)
        self._unknown.pop(name, None)
        self.assumptions.pop(name, None)

    def copy(self, old: TableName, new: TableName) -> None:
        """Let `new` look like `old`, or be as little known."""
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
