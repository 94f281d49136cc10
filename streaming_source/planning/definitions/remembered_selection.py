"""Comparison of the selection in a checkpoint with the query's current selection, once for each start.

`RememberedSelection.stored_in` writes the selection into the offsets of this query, so that the next start can compare.
If tables were added or removed, `compare` logs one warning and `report` shows it in the progress. A checkpoint of
another table, or with another row shape, is an error before the first row.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from replica.schema.patterns import table_text
from streaming_source.offsets.selection import Selection, SelectionChange, named
from streaming_source.selection.pushed_filters import OPERATIONS

if TYPE_CHECKING:
    from replica.schema.known_tables import TableName
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.resolver import SelectedTables

_log = logging.getLogger(__name__)


class RememberedSelection:
    """Comparison of one query, in the process that plans it. Only one thread calls it."""

    def __init__(self, now: Selection, tables: SelectedTables, *, reads: bool = False) -> None:
        """Keep the current selection.

        Args:
            now: the selection as offsets keep it.
            tables: the selected tables.
            reads: whether the rows of added tables are read (startingPosition=initial).
        """
        self._now = now
        self._reads = reads
        self._tables = tables
        self._compared = False
        self._change: tuple[SelectionChange, str] | None = None

    def stored_in(self, offset: SourceOffset) -> SourceOffset:
        """Return the offset with the selection, for Spark to log."""
        return replace(offset, selection=self._now)

    def compare(self, written: SourceOffset, applies_from: SourceOffset) -> None:
        """Compare the selections, once.

        Args:
            written: the last offset of the checkpoint.
            applies_from: the offset after which this query's selection applies.

        Raises:
            ConfigError: the checkpoint is of another table, or of rows of another shape.
        """
        if self._compared:
            return
        change = None if written.selection is None else written.selection.change_to(self._now)
        self._compared = True
        if change is None or written.selection is None:
            return
        position = str(applies_from.through)
        self._change = change, position
        new = tuple(map(table_text, self._new_tables(written.selection))) if change.added else ()
        added = f" Added tables that exist now: {named(new)}." if new else ""
        _log.warning("%s%s", change.message(position, read=self._reads), added)

    def report(self) -> dict[str, Any]:
        """Return the value for the progress of the query."""
        if self._change is None:
            return {}
        change, position = self._change
        return {"selectionChanged": change.json(position)}

    def to_read(self, start: SourceOffset) -> tuple[TableName, ...]:
        """Return the tables whose rows have to be read because they were added after `start`."""
        if not self._reads or start.selection is None or start.selection == self._now:
            return ()
        change = start.selection.change_to(self._now)
        return self._new_tables(start.selection) if change is not None and change.added else ()

    def _new_tables(self, before: Selection) -> tuple[TableName, ...]:
        old = tables_then(self._tables, before)
        return tuple(name for name in sorted(self._tables.catalog) if not old.selects(*name))


def tables_then(tables: SelectedTables, before: Selection | None) -> SelectedTables:
    """Return the tables of an earlier selection, or the current tables if the earlier selection is unknown."""
    if before is None or before.digest is not None:
        return tables
    return replace(tables, patterns=before.tables, exclude=before.exclude, shadows=before.shadows)


def selection_of(plan: ReadPlan) -> Selection:
    """Return the selection of a query in the form that offsets keep."""
    tables = plan.tables
    operations = (*tables.operations, "ddl") if tables.include_ddl else tables.operations
    return Selection(
        plan.shape,
        tuple(sorted(set(tables.patterns))),
        tuple(sorted(set(tables.exclude))),
        shadows=tables.shadows,
        operations=() if operations == OPERATIONS else tuple(sorted(operations)),
        skip_unchanged=tables.skip_unchanged,
        unread=() if tables.unreadable is None else tables.unreadable.patterns,
    )
