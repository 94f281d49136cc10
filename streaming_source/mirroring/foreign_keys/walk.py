"""Walk of one micro-batch, from tables that lost rows to the tables whose foreign keys refer to them.

`CascadeWalk.go` fills `found`, the rows of each target that the server changed by foreign keys, and `missed`, the
tables whose rows cannot be determined, with the reason. `WalkRows` reads the rows and changes that the walk needs. The
walk writes nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import SchemaError
from replica.schema.patterns import table_text
from replica.schema.text.naming import column_key
from streaming_source.mirroring.apply.faults import raise_fault
from streaming_source.mirroring.batch.batch_facts import TableChanges
from streaming_source.mirroring.batch.manifest import DELETES, INSERTS, UNCHECKED, UPDATES
from streaming_source.mirroring.batch.table_rows import OTHER_TYPES, rows_of_table
from streaming_source.mirroring.foreign_keys.keys import has_orphans
from streaming_source.mirroring.foreign_keys.lost_values import (
    MOST_ROWS,
    TooManyRowsError,
    inserted_values,
    lost_values,
)
from streaming_source.mirroring.foreign_keys.stale_rows import (
    FoundRows,
    Referring,
    last_changes,
    lost_with,
    orphan_rows,
    stale_rows,
    unchanged_since,
)
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.reading.rules import transformed_table
from streaming_source.mirroring.statements.alterations import statements_of
from streaming_source.mirroring.writers.choose import open_target
from streaming_source.schema.table_columns import catalog_table_columns
from streaming_source.schema.target_modes import APPEND_LOG, CURRENT, HISTORY, SOFT_DELETE
from streaming_source.sinks.queries import SPARK_ERRORS
from streaming_source.transforms.transformed_images import target_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.batch.batch_facts import BatchFacts
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.foreign_keys.keys import Link
    from streaming_source.mirroring.foreign_keys.lost_values import Lost, Place
    from streaming_source.mirroring.foreign_keys.stale_rows import Key, Stale
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.schema.row_schema import TableColumn


# `WalkRows` reads everything that the walk needs, and keeps the results. Columns that cannot be compared raise an
# UndeterminableError with the reason.


_LIVE: Final = {CURRENT: None, SOFT_DELETE: "NOT _deleted", HISTORY: "_current"}
"""Condition for rows of a target that are rows of the table, by mode."""


class UndeterminableError(Exception):
    """Reason why it cannot be determined which rows of a table a foreign key changed."""


class WalkRows:
    """Rows of targets and changes of one micro-batch, as a walk reads them."""

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
        """Return the bits of a table (`manifest.py`)."""
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
        """Return the values of rows that the micro-batch inserts, as losses. Errors are those of `lost`."""
        named = self._named(self._rows[name], columns)
        return inserted_values(self._change_rows(self._rows[name], named), named)

    def stale(self, parent: TableName, link: Link, lost: Lost, shown: Sequence[str]) -> Stale:
        """Return the rows of a target that refer to a lost value. Errors are those of `lost`."""
        child = self._rows[link.child]
        by = Referring(*(self._in_target(child, names) for names in (link.key.columns, child.keys, shown)))
        self._check_types(parent, link, child)
        return stale_rows(self._live(child), lost, by)

    def changed(self, name: TableName, stale: Stale) -> dict[Key, tuple[Place, set[int]]]:
        """Return the place of the last change of these rows in the micro-batch. Errors are those of `lost`."""
        row = self._rows[name]
        if not self.changes(name).changes:
            return {}
        return last_changes(self._change_rows(row, row.keys), row.keys, stale)

    def orphans(self, parent: TableName, link: Link, shown: Sequence[str]) -> Stale:
        """Return orphans in a child's target, by comparing it with the parent's target.

        Raises:
            UndeterminableError: the server itself has orphans, which were written with foreign_key_checks=0, or the
                values cannot be compared.
            TooManyRowsError: there are more than the driver takes.
        """
        child, parent_row = self._rows[link.child], self._rows[parent]
        by = Referring(*(self._in_target(child, names) for names in (link.key.columns, child.keys, shown)))
        to = self._in_target(parent_row, link.key.parent_columns)
        self._check_types(parent, link, child)
        found = orphan_rows(self._live(child), self._live(parent_row), to, by)
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
        target, live = open_target(self._batch.sparkSession, row.target).rows(), _LIVE[row.mode]
        return target if live is None else target.where(live)

    def _change_rows(self, row: ControlRow, names: Sequence[str]) -> DataFrame:
        """Return the rows of a table in the micro-batch, with only these columns."""
        columns = self._columns(row)
        wide = self._settings.options.sequence_numbers == "decimal"
        chosen = tuple(columns[name] for name in dict.fromkeys(names))
        return rows_of_table(self._batch, row.name, chosen, self.changes(row.name), wide_sequence=wide)

    def _in_target(self, row: ControlRow, names: Sequence[str]) -> Sequence[str]:
        """Return the names of columns in the target. Refuse columns whose values a rule hides."""
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
        """Return column names in the spelling of the table's definition. A foreign key may have an older spelling."""
        spelled = {column_key(name): name for name in self._columns(row)}
        unknown = [name for name in names if column_key(name) not in spelled]
        if unknown:
            raise UndeterminableError(f"{'.'.join(row.name)} has no column {unknown[0]} in this micro-batch.")
        return [spelled[column_key(name)] for name in names]

    def _columns(self, row: ControlRow) -> dict[str, TableColumn]:
        return {column.name: column for column in catalog_table_columns(row.table, self._settings.policy)}


MOST_LEVELS: Final = 16
"""Most levels of a walk. InnoDB follows cascades 15 levels deep, and refuses deeper cascades (FK_MAX_CASCADE_DEL)."""
_ORDER = "the order of its changes and those of that table is uncertain, or the equality of two texts is."


class _Hit(NamedTuple):
    """Rows of a table that were deleted, or whose values in some of `columns` changed (None: in any column).

    Attributes:
        lost: returns the lost values of some columns. None if they are unknown, for the reason `why`.
        unseen: a loss after which rows of the table may have been deleted without the walk seeing them. Child rows are
            then found as orphans.
        last: the latest place at which unknown values were lost.
    """

    table: TableName
    event: str
    lost: Callable[[Sequence[str]], Lost] | None
    why: str = ""
    level: int = 0
    columns: tuple[str, ...] | None = None
    unseen: Lost | None = None
    last: Place | None = None

    def reaches(self, link: Link) -> str | None:
        """Return the action of another table's foreign key on these rows: CASCADE, SET NULL, or None."""
        apart = self.columns is not None and not set(self.columns) & set(link.key.parent_columns)
        return None if apart else link.action(self.event)


class CascadeWalk:
    """Walk of one micro-batch.

    Attributes:
        complete: the tables of which the micro-batch has all changes.
        began: for a walk over deferred cascades, each of its tables with a position at which the table was complete.
            Losses before this position are not in doubt. Foreign keys may have deleted rows of these tables before the
            walk.
    """

    def __init__(
        self,
        rows: WalkRows,
        links: Mapping[TableName, list[Link]],
        complete: Collection[TableName],
        began: Mapping[TableName, GtidPosition] = {},
    ) -> None:
        self._rows = rows
        self._links = links
        self._complete = complete
        self._began = began
        self._hits: deque[_Hit] = deque()
        self._last: deque[_Hit] = deque()
        """Hits that are followed after all certain rows are found."""
        self._seen: set[tuple[object, ...]] = set()
        self.found: dict[TableName, FoundRows] = {}
        self.missed: dict[TableName, str] = {}
        """Tables whose rows may have changed, and why the rows cannot be determined."""

    def go(self, touched: Mapping[TableName, int]) -> None:
        """Find the rows that foreign keys changed."""
        for table, bits in sorted(touched.items()):
            row = self._rows.of(table)
            ends = UPDATES if row is not None and row.table.versioned else 0
            for event, bit in {"DELETE": DELETES | ends, "UPDATE": UPDATES}.items():
                if bits & bit and any(link.action(event) for link in self._links.get(table, ())):
                    self._hits.append(self._root(table, event))
        while self._hits or self._last:
            hit = (self._hits or self._last).popleft()
            for link in self._links.get(hit.table, ()):
                action, child = hit.reaches(link), self._rows.of(link.child)
                if action is None:
                    continue
                if child is None or child.mode == APPEND_LOG:  # no rows to find, but its child tables may have targets
                    self._follow_unknown(
                        link, hit.event, action, f"the mirror does not have the rows of {_dotted(link.child)}."
                    )
                else:
                    self._follow(hit, link, action, child)

    def _root(self, table: TableName, event: str) -> _Hit:
        row = self._rows.of(table)
        if row is None:
            return _Hit(table, event, None, "the mirror does not have that table.")
        if not row.live or table not in self._complete:
            return _Hit(table, event, None, "that table is still being read.")
        if self._rows.altered(table):
            why = "that table was altered in the same micro-batch."
            return _Hit(table, event, None, why, last=self._last_change(table))
        return _Hit(table, event, lambda columns: self._rows.lost(table, columns, event))

    def _last_change(self, table: TableName) -> Place | None:
        """Return the place of the last change of a table; None if the micro-batch does not show it."""
        changes = self._rows.changes(table)
        if changes.fault is not None or changes.domains > 1:
            return None
        return max((run.last for run in changes.maps if not run.read), default=None)

    def _follow(self, hit: _Hit, link: Link, action: str, child: ControlRow) -> None:
        """Find the rows of one target that one foreign key changed."""
        if hit.lost is None and hit.unseen is None and self._included_place(link.child, hit.last):
            # The child already includes the loss. Its own child tables may be older.
            self._follow_unknown(link, hit.event, action, hit.why, hit.last)
            return
        try:
            stale, lost = self._find_rows(hit, link, action, child)
        except (UndeterminableError, SchemaError) as error:
            self._miss(hit, link, action, str(error))
        except TooManyRowsError:
            self._miss(hit, link, action, f"more than {MOST_ROWS:,} rows are affected.")
        except SPARK_ERRORS as error:
            raise_fault(error, written=1)
            self._miss(hit, link, action, f"Spark reports {type(error).__name__}.")
        else:
            if stale is not None and stale.keys:
                stale = self._note(hit, link, action, stale, lost)
            if (hit.event, action) == ("DELETE", "CASCADE"):
                self._follow_children(hit, link, stale, lost)

    def _find_rows(self, hit: _Hit, link: Link, action: str, child: ControlRow) -> tuple[Stale | None, Lost]:
        if not child.live:
            raise UndeterminableError(f"{_dotted(link.child)} is {child.state}.")
        if hit.unseen is not None:
            return self._find_orphans(hit, hit.unseen, link, action, child)
        if hit.lost is None:
            raise UndeterminableError(hit.why)
        lost = hit.lost(link.key.parent_columns)
        if self._rows.altered(link.child):
            if not all(self._is_early(link.child, lost, row) for row in range(len(lost.at))):
                raise UndeterminableError("it was altered in the same micro-batch.")
            return None, lost  # the child was read after the loss, its child tables perhaps before the loss
        if not lost.at:
            return None, lost
        stale = self._rows.stale(hit.table, link, lost, self._shown(link.child))
        if not stale.keys:
            return None, lost
        found = self.found.get(link.child)
        already_found = found.deleted if found is not None else ()
        changes = self._rows.changed(link.child, stale) if child.keys else {}
        chosen, doubt = unchanged_since(stale, lost, changes, already_found)
        why = self._doubt(hit, link, action, child)
        doubted = set(chosen) if why is not None else doubt
        early = {row for row in doubted if self._is_early(link.child, lost, stale.lost[row])}
        if doubted - early:
            raise UndeterminableError(why or _ORDER)
        return stale.take([row for row in chosen if row not in early]), lost

    def _is_early(self, child: TableName, lost: Lost, number: int) -> bool:
        """Return True if a loss is not after the position at which the child table was complete.

        Args:
            child: the child table.
            lost: the losses.
            number: the number of the loss in `lost`.
        """
        began = self._began.get(child)
        last = None if began is None else began.get(lost.domain[number])
        return last is not None and lost.at[number][0] <= last.seq_no

    def _included_place(self, child: TableName, last: Place | None) -> bool:
        """Return True if the child was complete at a position of one domain that includes the place."""
        began = self._began.get(child)
        return last is not None and began is not None and len(began) == 1 and last[0] <= next(iter(began)).seq_no

    def _find_orphans(
        self, hit: _Hit, loss: Lost, link: Link, action: str, child: ControlRow
    ) -> tuple[Stale | None, Lost]:
        """Find orphans of the parent `hit.table`, because the binlog does not record which of its rows were deleted.

        If there are no orphans, rows of the child may have been deleted before the child was read, and after its own
        child tables were read. So the caller still searches these child tables.
        """
        if self._is_early(link.child, loss, 0):
            return None, loss
        stale = self._rows.orphans(hit.table, link, self._shown(link.child))
        found = self.found.get(link.child)
        already_found = found.deleted if found is not None else ()
        stale = stale.take([row for row, key in enumerate(stale.keys) if key not in already_found])
        if not stale.keys:
            return None, loss
        why = self._doubt(hit, link, action, child)
        if self._rows.altered(hit.table) or self._rows.altered(link.child):
            why = "it, or that table, was altered meanwhile."
        if why is not None or not all(stale.alike):
            raise UndeterminableError(why or _ORDER)
        return stale, loss

    def _doubt(self, hit: _Hit, link: Link, action: str, child: ControlRow) -> str | None:
        """Return why the found rows may be wrong, or why the target cannot apply the action; None if neither is so."""
        if action not in mode_of(child.mode, child.keys).cascades:
            return f"{'its target has the mode ' + child.mode if child.keys else 'it has no key'}."
        if action == "CASCADE" and hit.event == "UPDATE":
            return "ON UPDATE CASCADE is not followed."
        unchecked = any(self._rows.touched(name) & UNCHECKED for name in (hit.table, link.child))
        return "rows were changed with foreign_key_checks=0." if unchecked else None

    def _note(self, hit: _Hit, link: Link, action: str, stale: Stale, lost: Lost) -> Stale:
        """Record the found rows; return those that were not found before."""
        child = self._rows.of(link.child)
        assert child is not None  # noqa: S101  (`_find_rows` has read it)
        if link.child not in self.found:
            self.found[link.child] = FoundRows(self._rows.target_names(link.child, child.keys))
        found = self.found[link.child]
        found.constraints.add(f"{link.key.constraint} (ON {hit.event} {action})")
        if action == "CASCADE":
            return found.add(stale, lost, None)
        self._follow_unknown(link, hit.event, action, f"values of {_dotted(link.child)} became NULL.")
        return found.add(stale, lost, self._rows.target_names(link.child, link.key.columns))

    def _follow_children(self, hit: _Hit, link: Link, deleted: Stale | None, lost: Lost) -> None:
        """Follow the cascades of deleted rows into the child tables of their table."""
        shown = self._shown(link.child)
        if not shown:
            return
        if link.child not in self._complete or hit.level >= MOST_LEVELS:
            self._follow_unknown(link, "DELETE", "CASCADE", f"not all rows of {_dotted(link.child)} are known.")
            return
        if self._rows.filtered(link.child):
            self._follow_unknown(
                link, "DELETE", "CASCADE", f"{_dotted(link.child)} has a filter, so its target lacks rows."
            )
            return
        if deleted is not None and deleted.keys:
            self._hits.append(_Hit(link.child, "DELETE", lost_with(deleted, lost, shown), level=hit.level + 1))
        if lost.at and link.child in self._began and self._is_new("unseen", link.child):
            last = lost.of([lost.at.index(max(lost.at))])
            self._last.append(_Hit(link.child, "DELETE", None, unseen=last))
        if lost.at and self._rows.touched(link.child) & INSERTS and self._is_new("inserted", link.child):
            # An insert shows that an earlier row with the same key, if there was one, was deleted before. Child rows of
            # the earlier row lost their parent, too.
            name = link.child
            self._last.append(_Hit(name, "DELETE", lambda columns: self._rows.inserted(name, columns)))

    def _miss(self, hit: _Hit, link: Link, action: str, why: str) -> None:
        """Record that rows of the child table may have changed, and continue with its own child tables."""
        child = self._rows.of(link.child)
        if child is not None and child.live and child.rows:
            self.missed.setdefault(
                link.child,
                f"its foreign key {link.key.constraint} (ON {hit.event} {action}) may have changed its rows with those "
                f"of {_dotted(hit.table)}. The changed rows are unknown: {why}",
            )
        self._follow_unknown(link, hit.event, action, f"the changed rows of {_dotted(link.child)} are unknown, too.")

    def _follow_unknown(self, link: Link, event: str, action: str, why: str, last: Place | None = None) -> None:
        """Continue with the child tables of a table if it is unknown which rows of this table a foreign key changed."""
        deletes = (event, action) == ("DELETE", "CASCADE")
        columns = None if deletes else tuple(link.key.columns)
        hit = _Hit(link.child, "DELETE" if deletes else "UPDATE", None, why, columns=columns, last=last)
        if self._is_new("unknown", hit.table, hit.event, columns, last):
            self._hits.append(hit)

    def _shown(self, name: TableName) -> list[str]:
        """Return the columns of a table to which foreign keys with ON DELETE actions refer."""
        referring = [link for link in self._links.get(name, ()) if link.action("DELETE")]
        return sorted({column for link in referring for column in link.key.parent_columns})

    def _is_new(self, *what: object) -> bool:
        if what in self._seen:
            return False
        self._seen.add(what)
        return True


def _dotted(name: TableName) -> str:
    return table_text(name)
