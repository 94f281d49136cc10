"""Frontier of a snapshot: how much of each table is delivered, as plain values in the offset.

Tables are started in the order of their names (database, then table, by UTF-8 bytes). One name therefore stands for all
started tables. A table that is created later under a smaller or equal name is delivered by the stream from its CREATE.
A table under a greater name is read in its turn. The frontier lists partly delivered tables with the key up to which
each is delivered. Their number depends on the number of concurrent reads and not on the number of tables. A table that
is renamed to a smaller or equal name, or is re-snapshotted, is started again.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.schema.known_tables import TableName

NOTHING: Final = b""
"""Kept key of a started table with no delivered row."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """Delivered part of all tables.

    Attributes:
        after: Every table up to and including this name is started; None for no table. Started tables that are not in
            `open` are completely delivered.
        open: Partly delivered tables in ascending order, each with the kept key (length-prefixed image bytes) up to
            which it is delivered.
        rows: Number of delivered rows, which is the number of the next row.
        done: Whether every table is started. Tables that are created later count as started.
    """

    after: TableName | None = None
    open: tuple[tuple[TableName, bytes], ...] = ()
    rows: int = 0
    done: bool = False

    def reached(self, name: TableName) -> bytes | None:
        """Return the kept key up to which a table is delivered: NOTHING before its first row, None for the whole
        table.
        """
        for opened, kept in self.open:
            if opened == name:
                return kept
        return None if self._has_started(name) else NOTHING

    def _has_started(self, name: TableName) -> bool:
        return self.done or (self.after is not None and name <= self.after)

    @property
    def partly(self) -> dict[TableName, bytes]:
        """Tables with delivered and undelivered rows, each with the kept key up to which it is delivered."""
        return {name: kept for name, kept in self.open if kept != NOTHING}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to deliver, so that an offset can omit the frontier."""
        return self.done and not self.open

    def begin(self, names: Iterable[TableName]) -> Self:
        """Return the frontier after these tables are started.

        `names` must contain all tables between `after` and the last name. Tables that are started already do not
        change.
        """
        new = sorted(name for name in names if not self._has_started(name))
        if not new:
            return self
        return replace(self, after=new[-1], open=_ordered({**dict(self.open), **dict.fromkeys(new, NOTHING)}))

    def advance(self, name: TableName, kept: bytes | None, rows: int) -> Self:
        """Return the frontier after the delivery of more rows of a started table.

        Args:
            name: Name of the table.
            kept: Kept key of the last delivered row; None if the table is delivered to its end.
            rows: Number of rows delivered by this step.

        Raises:
            ValueError: The table is not started, or is completely delivered.
        """
        opened = dict(self.open)
        if name not in opened:
            raise ValueError(f"{'.'.join(name)} is not open")
        if kept is None:
            del opened[name]
        else:
            opened[name] = kept
        return replace(self, open=_ordered(opened), rows=self.rows + rows)

    def restarted(self, names: Iterable[TableName]) -> Self:
        """Return the frontier after the delivered rows of these tables are discarded."""
        started = [name for name in names if self._has_started(name)]
        if not started:
            return self
        return replace(self, open=_ordered({**dict(self.open), **dict.fromkeys(started, NOTHING)}))

    def without(self, names: Iterable[TableName]) -> Self:
        """Return the frontier without open tables that do not exist any more or are not selected any more."""
        removed = set(names)
        return replace(self, open=tuple((name, kept) for name, kept in self.open if name not in removed))

    def finish(self) -> Self:
        """Return the frontier with every table started; open tables stay open."""
        return replace(self, after=None, done=True)

    def json(self) -> dict[str, Any]:
        """Return the JSON value; equal frontiers give equal text."""
        value: dict[str, Any] = {}
        if self.after is not None:
            value["after"] = list(self.after)
        if self.open:
            value["open"] = [[*name, base64.b64encode(kept).decode("ascii")] for name, kept in self.open]
        value["rows"] = self.rows
        if self.done:
            value["done"] = True
        return value

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Parse the JSON value.

        Raises:
            ValueError, KeyError, TypeError: The value is no frontier.
        """
        after = None if value.get("after") is None else _name(*value["after"])
        opened = {
            _name(database, table): base64.b64decode(kept, validate=True)
            for database, table, kept in value.get("open", ())
        }
        return cls(after, _ordered(opened), int(value["rows"]), bool(value.get("done", False)))


def _name(database: object, table: object) -> TableName:
    return str(database), str(table)


def _ordered(opened: Mapping[TableName, bytes]) -> tuple[tuple[TableName, bytes], ...]:
    # Python sorts text by code points, which is the order of UTF-8 bytes.
    return tuple(sorted(opened.items()))
