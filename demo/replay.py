"""Tables rebuilt from nothing but change rows: what a consumer of the stream would have.

In: batches of changes, in any order within a batch. Out: the tables as Python values. Each change is also checked on
the way: an identity seen twice, an insert of a row that is there, an update or delete whose before image is not the row
we have, are all recorded as faults: the proof fails on any of them, even if the tables came out right.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Row = dict[str, Any]
Key = tuple[Any, ...]

MOST_FAULTS = 20  # enough to see a pattern; the first one already decides


class Change(NamedTuple):
    """One row change with its identity: domain, server, sequence number and ordinal in the transaction."""

    identity: tuple[int, int, int, int]
    table: str
    op: str
    before: Row | None
    after: Row | None


def canonical(value: object) -> object:
    """Bring a value from Spark and the same value from the server into one form: timestamps in UTC without a zone."""
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def canonical_row(row: Mapping[str, object]) -> Row:
    """Return the row without its NULLs: a column added later is NULL in every row the stream delivered before."""
    return {name: canonical(value) for name, value in row.items() if value is not None}


@dataclass
class Rebuilt:
    """The tables so far. `keys`: primary key columns by table."""

    keys: Mapping[str, tuple[str, ...]]
    tables: dict[str, dict[Key, Row]] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    _seen: set[tuple[int, int, int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.tables = {table: {} for table in self.keys}

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply one batch in commit order; rows of one domain never meet those of another here."""
        for change in sorted(changes, key=lambda c: c.identity):
            if change.identity in self._seen:
                self._fault(change, "arrived twice")
                continue
            self._seen.add(change.identity)
            self.changes[change.table] += 1
            self._apply(change)

    def _apply(self, change: Change) -> None:
        rows = self.tables[change.table]
        if change.before is not None:
            before = canonical_row(change.before)
            if rows.pop(self._key(change.table, before), None) != before:
                self._fault(change, "its before image is not the row we have")
        if change.after is not None:
            after = canonical_row(change.after)
            key = self._key(change.table, after)
            if key in rows:
                self._fault(change, "the row is there already")
            rows[key] = after

    def _key(self, table: str, row: Row) -> Key:
        return tuple(row[name] for name in self.keys[table])

    def _fault(self, change: Change, what: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(f"{change.op} in {change.table}, {'-'.join(map(str, change.identity))}: {what}")
