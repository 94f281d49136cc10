"""The part of a decoded range that a query gets: groups, rows of a group that was cut, and DDL between the rows.

`RangeChoice` takes the partition's bounds and the plan's selection. It returns a mask of the groups to decode, a mask
of the rows of a batch to keep, and the statements with their places. Without bounds and statements it returns None,
which costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.rows.decode.batch import ChangeBatch, Groups
    from replica.rows.decode.decode import GroupChoice
    from streaming_source.rows.partition import GroupBounds, RowBounds
    from streaming_source.rows.statements.ddl_rows import DdlRows
    from streaming_source.selection.resolver import SelectedTables

    Flags = np.ndarray[Any, np.dtype[np.bool_]]


class RangeChoice:
    """The choice for one range. `statements` is None if the query does not ask for DDL."""

    def __init__(
        self,
        tables: SelectedTables,
        statements: DdlRows | None,
        bounds: GroupBounds | None = None,
        rows: Sequence[RowBounds] = (),
    ) -> None:
        self._filter = tables.filter
        self._statements = statements
        self._bounds = bounds
        self._rows = rows

    @property
    def of_groups(self) -> GroupChoice | None:
        """The function that chooses groups for the decoder; None if there is no filter, no bound and no DDL to find."""
        asked = self._filter is not None or self._bounds is not None or self._statements is not None
        return self.groups if asked else None

    def groups(self, groups: Groups) -> Flags:
        """Return a mask of the groups to decode."""
        wanted = np.ones(len(groups), np.bool_) if self._filter is None else self._filter.groups(groups)
        if self._bounds is not None:
            wanted &= wanted_groups(self._bounds, groups)
        if self._statements is not None:
            begun = wanted.copy()
            for part in self._rows:  # the first part of a transaction has its statements
                if part.first:
                    begun &= ~_named(part, groups)
            self._statements.find(groups, begun)
        return wanted

    def rows(self, changes: ChangeBatch) -> Flags | None:
        """Return a mask of the rows of a batch to keep; None for all."""
        if not self._rows:
            return changes.kept
        wanted = [wanted_rows(part, changes) for part in self._rows]
        return np.logical_and.reduce(wanted if changes.kept is None else [changes.kept, *wanted])

    def before(self, changes: ChangeBatch) -> list[tuple[int, ChangeBatch]]:
        """Return the statements before rows of this batch, each with the index of the following row."""
        return [] if self._statements is None else self._statements.before(changes)

    def rest(self) -> Iterator[ChangeBatch]:
        """Yield the statements after the last row."""
        if self._statements is not None:
            yield from self._statements.rest()


def wanted_groups(bounds: GroupBounds, groups: Groups) -> Flags:
    """Return a mask of the needed groups of a range."""
    wanted = np.ones(len(groups), np.bool_)
    seq_no = groups.seq_no.view(np.uint64)
    for domain, number in bounds.lower or ():
        wanted &= (groups.domain != domain) | (seq_no > np.uint64(number))
    if bounds.upper is not None:
        below = np.zeros(len(groups), np.bool_)
        for domain, number in bounds.upper:
            below |= (groups.domain == domain) & (seq_no <= np.uint64(number))
        wanted &= below
    return wanted


def wanted_rows(part: RowBounds, changes: ChangeBatch) -> Flags:
    """Return a mask of the needed rows of a batch: some of the group that `part` names, and all of other groups."""
    wanted = changes.ordinal >= part.first
    if part.end is not None:
        wanted &= changes.ordinal < part.end
    return np.asarray(wanted | ~_named(part, changes.groups)[changes.group])


def _named(part: RowBounds, groups: Groups) -> Flags:
    return np.asarray((groups.domain == part.domain) & (groups.seq_no.view(np.uint64) == np.uint64(part.seq_no)))
