"""Rows that a walk reads: values that a table lost in the micro-batch, and rows of a target that refer to them.

In: the micro-batch, and the rows of the control table after its changes. Out: rows in the driver. Columns that cannot
be compared raise an UndeterminableError with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from replica.schema.text.naming import column_key
from streaming_source.mirroring.batch.batch_facts import TableChanges
from streaming_source.mirroring.batch.table_rows import OTHER_TYPES, rows_of_table
from streaming_source.mirroring.foreign_keys.links import has_orphans
from streaming_source.mirroring.foreign_keys.lost_values import inserted_values, lost_values
from streaming_source.mirroring.foreign_keys.stale_rows import Referring, last_changes, orphan_rows, stale_rows
from streaming_source.mirroring.reading.rule_check import transformed_table
from streaming_source.mirroring.statements.statement_scope import statements_of
from streaming_source.schema.table_columns import catalog_table_columns
from streaming_source.schema.target_modes import CURRENT, HISTORY, SOFT_DELETE
from streaming_source.transforms.target_columns import target_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.foreign_keys.links import Link
    from streaming_source.mirroring.foreign_keys.lost_values import Lost, Place
    from streaming_source.mirroring.foreign_keys.stale_rows import Key, Stale
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.schema.row_schema import TableColumn

_LIVE: Final = {CURRENT: None, SOFT_DELETE: "NOT _deleted", HISTORY: "_current"}
"""Condition for rows of a target that are rows of the table, by mode."""


class UndeterminableError(Exception):
    """Reason why it cannot be determined which rows of a table a foreign key changed."""


class WalkRows:
    """Rows of one micro-batch; `rows`: the rows of the control table."""

    def __init__(
        self,
        settings: MirrorSettings,
        batch: DataFrame,
        facts: BatchFacts,
        rows: Mapping[TableName, ControlRow],
    ) -> None:
        self._settings = settings
        self._batch = batch
        self._facts = facts
        self._rows = rows
        self._lost: dict[tuple[Any, ...], Lost] = {}

    def of(self, name: TableName) -> ControlRow | None:
        """Return the control row of a table; None for a table outside the mirror."""
        return self._rows.get(name)

    def changes(self, name: TableName) -> TableChanges:
        """Return the facts of a table in the micro-batch."""
        return self._facts.tables.get(name, TableChanges())

    def touched(self, name: TableName) -> int:
        """Return the bits of a table (`touched_tables.py`)."""
        return self._facts.touched.get(name, 0)

    def altered(self, name: TableName) -> bool:
        """Return True if the micro-batch has a statement on a table."""
        return bool(statements_of(self._facts, name))

    def lost(self, name: TableName, columns: Sequence[str], event: str) -> Lost:
        """Return the values that rows of a table lost, by the changes of the micro-batch.

        Raises:
            UndeterminableError: the values cannot be determined from the changes.
            TooManyRowsError: there are more than the driver takes.
        """
        known = (name, tuple(columns), event)
        if known not in self._lost:
            row = self._rows[name]
            if self.changes(name).partial and not set(self._named(row, columns)) <= set(row.keys):
                raise UndeterminableError("images of its changes lack columns.")
            named = self._named(row, columns)
            self._lost[known] = lost_values(self._change_rows(row, named), named, event)
        return self._lost[known]

    def inserted(self, name: TableName, columns: Sequence[str]) -> Lost:
        """Return the values of rows that the micro-batch inserts, as losses; it raises the same errors as `lost`."""
        named = self._named(self._rows[name], columns)
        return inserted_values(self._change_rows(self._rows[name], named), named)

    def stale(self, parent: TableName, link: Link, lost: Lost, shown: Sequence[str]) -> Stale:
        """Return the rows of a target that refer to a lost value; it raises the same errors as `lost`."""
        child = self._rows[link.child]
        by = Referring(*(self._in_target(child, names) for names in (link.key.columns, child.keys, shown)))
        self._check_types(parent, link, child)
        return stale_rows(self._live(child), lost, by)

    def changed(self, name: TableName, stale: Stale) -> dict[Key, tuple[Place, set[int]]]:
        """Return the place of the last change of these rows in the micro-batch; it raises the same errors as `lost`."""
        row = self._rows[name]
        if not self.changes(name).changes:
            return {}
        return last_changes(self._change_rows(row, row.keys), row.keys, stale)

    def orphans(self, parent: TableName, link: Link, shown: Sequence[str]) -> Stale:
        """Return orphans in a target, by its parent's target; it raises the same errors as `lost`.

        Raises:
            UndeterminableError: the server itself has orphans, which were written with foreign_key_checks=0.
        """
        child, above = self._rows[link.child], self._rows[parent]
        by = Referring(*(self._in_target(child, names) for names in (link.key.columns, child.keys, shown)))
        to = self._in_target(above, link.key.parent_columns)
        self._check_types(parent, link, child)
        found = orphan_rows(self._live(child), self._live(above), to, by)
        if found.keys and has_orphans(self._settings.options, link):
            raise UndeterminableError("the server itself has rows without a parent row in that table.")
        return found

    def filtered(self, name: TableName) -> bool:
        """Return True if a rule keeps rows of a table out of its target."""
        return self._settings.rule_of(name).where is not None

    def target_names(self, name: TableName, columns: Sequence[str]) -> Sequence[str]:
        """Return the names of columns in the target."""
        return self._in_target(self._rows[name], columns)

    def _live(self, row: ControlRow) -> DataFrame:
        """Return the rows of a target that are rows of the table."""
        target, live = self._batch.sparkSession.table(row.target), _LIVE[row.mode]
        return target if live is None else target.where(live)

    def _change_rows(self, row: ControlRow, names: Sequence[str]) -> DataFrame:
        """Return the rows of a table in the micro-batch, with only these columns."""
        there = self._columns(row)
        wide = self._settings.options.sequence_numbers == "decimal"
        chosen = tuple(there[name] for name in dict.fromkeys(names))
        return rows_of_table(self._batch, row.name, chosen, self.changes(row.name), wide_sequence=wide)

    def _in_target(self, row: ControlRow, names: Sequence[str]) -> Sequence[str]:
        """Return the names of columns in the target; refuse columns whose values a rule hides."""
        ruled = transformed_table(self._batch.sparkSession, row.table, self._settings)
        hidden = {column_key(name) for name in (*ruled.rule.leave_out, *ruled.rule.mask, *ruled.rule.hash)}
        if any(column_key(name) in hidden for name in names):
            raise UndeterminableError("its rule hides the values.")
        return target_keys(self._named(row, names), ruled.columns)

    def _check_types(self, parent: TableName, link: Link, child: ControlRow) -> None:
        """Refuse to compare columns of different types."""
        kinds = []
        for row, names in ((self._rows[parent], link.key.parent_columns), (child, link.key.columns)):
            columns = self._columns(row)
            kinds.append([columns[name].type for name in self._named(row, names)])
        if kinds[0] != kinds[1] or not OTHER_TYPES.isdisjoint(kinds[0]):
            raise UndeterminableError("values of its column types cannot be compared.")

    def _named(self, row: ControlRow, names: Sequence[str]) -> list[str]:
        """Return column names as the table's definition spells them: a foreign key may be older than its parent."""
        there = {column_key(name): name for name in self._columns(row)}
        unknown = [name for name in names if column_key(name) not in there]
        if unknown:
            raise UndeterminableError(f"{'.'.join(row.name)} has no column {unknown[0]} in this micro-batch.")
        return [there[column_key(name)] for name in names]

    def _columns(self, row: ControlRow) -> dict[str, TableColumn]:
        return {column.name: column for column in catalog_table_columns(row.table, self._settings.policy)}
