"""The frontier of a snapshot: what of which table is delivered, as plain values that an offset keeps.

In: names of tables in order, keys up to which their rows were delivered. Out: another frontier, and its JSON. Tables
are begun in the order of their names (database, then table, by the bytes of their UTF-8), so one name stands for all
that were begun: a table that is made later, under a name that was passed, is delivered by the stream from its CREATE
on, and one with a name that was not is read when its turn comes. Of the tables begun those that are not whole stand by
name, with the key that they are delivered up to: as many as are read side by side, however many tables there are. A
table that takes a passed name (RENAME) or is to be read again is begun again. Refused: JSON that is no frontier.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.schema.known_tables import TableName

NOTHING: Final = b""
"""The key of a table that was begun, and of which no row is delivered yet."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The tables delivered so far.

    `after`: every table up to and with this name was begun, None for no table; those of them that are not in `open` are
    delivered as a whole. `open`: the kept key (length-prefixed image bytes) up to which a table is delivered, by name,
    ascending. `rows`: the rows delivered so far, which is the number of the next one. `done`: every table was begun,
    those that are made later count as such.
    """

    after: TableName | None = None
    open: tuple[tuple[TableName, bytes], ...] = ()
    rows: int = 0
    done: bool = False

    def reached(self, name: TableName) -> bytes | None:
        """Return the kept key up to which a table is delivered: NOTHING before its first row, None for all of it."""
        for opened, kept in self.open:
            if opened == name:
                return kept
        return None if self._passed(name) else NOTHING

    def _passed(self, name: TableName) -> bool:
        return self.done or (self.after is not None and name <= self.after)

    @property
    def partly(self) -> dict[TableName, bytes]:
        """The tables of which a part is delivered and more is to come, with the kept keys up to which it is."""
        return {name: kept for name, kept in self.open if kept != NOTHING}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to deliver, so that an offset need not say anything."""
        return self.done and not self.open

    def begin(self, names: Iterable[TableName]) -> Self:
        """Return the frontier with these tables begun, which are all that there are between `after` and the last of
        them.

        Names that were passed are left as they are.
        """
        new = sorted(name for name in names if not self._passed(name))
        if not new:
            return self
        return replace(self, after=new[-1], open=_ordered({**dict(self.open), **dict.fromkeys(new, NOTHING)}))

    def advance(self, name: TableName, kept: bytes | None, rows: int) -> Self:
        """Return the frontier where `rows` more rows of a begun table are delivered, up to a key; None: up to its end.

        Raises:
            ValueError: the table is not begun, or delivered already.
        """
        opened = dict(self.open)
        if name not in opened:
            raise ValueError(f"{'.'.join(name)} is not open")
        if kept is None:
            del opened[name]
        else:
            opened[name] = kept
        return replace(self, open=_ordered(opened), rows=self.rows + rows)

    def again(self, names: Iterable[TableName]) -> Self:
        """Return the frontier where nothing is delivered of these tables, whatever was."""
        passed = [name for name in names if self._passed(name)]
        if not passed:
            return self
        return replace(self, open=_ordered({**dict(self.open), **dict.fromkeys(passed, NOTHING)}))

    def without(self, names: Iterable[TableName]) -> Self:
        """Return the frontier without open tables that are not there any more, or not asked for: nothing of them is
        left to deliver.
        """
        gone = set(names)
        return replace(self, open=tuple((name, kept) for name, kept in self.open if name not in gone))

    def finish(self) -> Self:
        """Return the frontier where no table is left to begin; those that are open still are."""
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
        """Read the JSON value.

        Raises:
            ValueError, KeyError, TypeError: it is none.
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
    # Python orders text by code points, which is the order of the bytes of UTF-8.
    return tuple(sorted(opened.items()))
