"""The walk of one micro-batch from tables whose rows went to the tables whose foreign keys refer to them.

In: what the batch does to which table, the foreign keys, the rows (`walk_rows.py`). Out: which rows of which targets
the server changed by them, and the tables of which that cannot be told. Nothing is written here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.schema.patterns import table_text
from streaming_source.mirroring.apply.faults import raise_fault
from streaming_source.mirroring.batch.touched_tables import DELETES, INSERTS, UNCHECKED, UPDATES
from streaming_source.mirroring.foreign_keys.found_rows import FoundRows
from streaming_source.mirroring.foreign_keys.lost_values import MOST_ROWS, TooManyRowsError
from streaming_source.mirroring.foreign_keys.stale_rows import lost_with, unchanged_since
from streaming_source.mirroring.foreign_keys.walk_rows import UntoldError
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.queries.short_errors import SPARK_ERRORS
from streaming_source.schema.target_modes import APPEND_LOG

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.foreign_keys.links import Link
    from streaming_source.mirroring.foreign_keys.lost_values import Lost, Place
    from streaming_source.mirroring.foreign_keys.stale_rows import Stale
    from streaming_source.mirroring.foreign_keys.walk_rows import WalkRows

MOST_LEVELS: Final = 16
"""InnoDB itself follows cascades 15 levels deep, and refuses a statement that goes deeper (FK_MAX_CASCADE_DEL)."""
_ORDER = "the order of its changes to those of that table, or whether two texts are the same, is not certain."


class _Hit(NamedTuple):
    """Rows of a table that went, or were given other values in some of `columns` (None: in any). `lost` returns the
    values of columns that they lost; None: nothing tells them, for the reason `why`, but they lost them at the place
    `last`, or earlier. `unseen`: they went before the walk, with this loss or an earlier one, and rows below them name
    none.
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
        """Return what a foreign key of another table does about it: CASCADE, SET NULL, or nothing."""
        apart = self.columns is not None and not set(self.columns) & set(link.key.parent_columns)
        return None if apart else link.action(self.event)


class CascadeWalk:
    """The walk of one batch. `whole`: tables of which it has all changes.

    `began`: for a walk over what was put off, the tables that it is about, each with the position up to which nothing
    has to be doubted of it: it was right there. Of these, rows may have gone before the walk, by foreign keys.
    """

    def __init__(
        self,
        rows: WalkRows,
        links: Mapping[TableName, list[Link]],
        whole: Collection[TableName],
        began: Mapping[TableName, GtidPosition] = {},
    ) -> None:
        self._rows = rows
        self._links = links
        self._whole = whole
        self._began = began
        self._hits: deque[_Hit] = deque()
        self._last: deque[_Hit] = deque()
        """What is looked at when all that is certain is found."""
        self._seen: set[tuple[object, ...]] = set()
        self.found: dict[TableName, FoundRows] = {}
        self.missed: dict[TableName, str] = {}
        """Tables of which rows may have been changed, and why it cannot be told which."""

    def go(self, touched: Mapping[TableName, int]) -> None:
        """Find what was cascaded."""
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
                if child is None or child.mode == APPEND_LOG:  # it has no target to change, those below it may
                    self._untell(
                        link, hit.event, action, f"the mirror does not have the rows of {_dotted(link.child)}."
                    )
                else:
                    self._follow(hit, link, action, child)

    def _root(self, table: TableName, event: str) -> _Hit:
        row = self._rows.of(table)
        if row is None:
            return _Hit(table, event, None, "the mirror does not have that table.")
        if not row.live or table not in self._whole:
            return _Hit(table, event, None, "that table is still being read.")
        if self._rows.altered(table):
            why = "that table was altered in the same micro-batch."
            return _Hit(table, event, None, why, last=self._last_change(table))
        return _Hit(table, event, lambda columns: self._rows.lost(table, columns, event))

    def _last_change(self, table: TableName) -> Place | None:
        """Return the place of the last change of a table; None where the batch does not tell it."""
        changes = self._rows.changes(table)
        if changes.fault is not None or changes.domains > 1:
            return None
        return max((met.last for met in changes.maps if not met.read), default=None)

    def _follow(self, hit: _Hit, link: Link, action: str, child: ControlRow) -> None:
        """Find the rows of one target that one foreign key changed."""
        if hit.lost is None and hit.unseen is None and self._was_right_behind(link.child, hit.last):
            self._untell(link, hit.event, action, hit.why, hit.last)  # each table below has its own
            return
        try:
            stale, lost = self._look(hit, link, action, child)
        except (UntoldError, SchemaError) as error:
            self._miss(hit, link, action, str(error))
        except TooManyRowsError:
            self._miss(hit, link, action, f"more than {MOST_ROWS:,} rows are concerned.")
        except SPARK_ERRORS as error:
            raise_fault(error, written=1)
            self._miss(hit, link, action, f"Spark says {type(error).__name__}.")
        else:
            if stale is not None and stale.keys:
                stale = self._note(hit, link, action, stale, lost)
            if (hit.event, action) == ("DELETE", "CASCADE"):
                self._go_below(hit, link, stale, lost)

    def _look(self, hit: _Hit, link: Link, action: str, child: ControlRow) -> tuple[Stale | None, Lost]:
        if not child.live:
            raise UntoldError(f"{_dotted(link.child)} is {child.state}.")
        if hit.unseen is not None:
            return self._look_for_orphans(hit, hit.unseen, link, action, child)
        if hit.lost is None:
            raise UntoldError(hit.why)
        lost = hit.lost(link.key.parent_columns)
        if self._rows.altered(link.child):
            if not all(self._is_early(link.child, lost, row) for row in range(len(lost.at))):
                raise UntoldError("it was altered in the same micro-batch.")
            return None, lost  # it has none of the rows, and tables below it may have been read before they went
        if not lost.at:
            return None, lost
        stale = self._rows.stale(hit.table, link, lost, self._shown(link.child))
        if not stale.keys:
            return None, lost
        found = self.found.get(link.child)
        known = found.gone if found is not None else ()
        changes = self._rows.changed(link.child, stale) if child.keys else {}
        chosen, doubt = unchanged_since(stale, lost, changes, known)
        why = self._doubt(hit, link, action, child)
        doubted = set(chosen) if why is not None else doubt
        early = {row for row in doubted if self._is_early(link.child, lost, stale.lost[row])}
        if doubted - early:
            raise UntoldError(why or _ORDER)
        return stale.take([row for row in chosen if row not in early]), lost

    def _is_early(self, child: TableName, lost: Lost, number: int) -> bool:
        """Tell whether a loss lies before the position at which a table was right."""
        began = self._began.get(child)
        last = None if began is None else began.get(lost.domain[number])
        return last is not None and lost.at[number][0] <= last.seq_no

    def _was_right_behind(self, child: TableName, last: Place | None) -> bool:
        """Tell whether a table was right at a position that has the place, in the only domain."""
        began = self._began.get(child)
        return last is not None and began is not None and len(began) == 1 and last[0] <= next(iter(began)).seq_no

    def _look_for_orphans(
        self, hit: _Hit, loss: Lost, link: Link, action: str, child: ControlRow
    ) -> tuple[Stale | None, Lost]:
        """Find the rows that name none of the table above: of those that went there, nothing tells. Where there are
        none, rows may have gone before they were read, and the tables below were read earlier.
        """
        if self._is_early(link.child, loss, 0):
            return None, loss
        stale = self._rows.orphans(hit.table, link, self._shown(link.child))
        found = self.found.get(link.child)
        known = found.gone if found is not None else ()
        stale = stale.take([row for row, key in enumerate(stale.keys) if key not in known])
        if not stale.keys:
            return None, loss
        why = self._doubt(hit, link, action, child)
        if self._rows.altered(hit.table) or self._rows.altered(link.child):
            why = "it, or that table, was altered meanwhile."
        if why is not None or not all(stale.alike):
            raise UntoldError(why or _ORDER)
        return stale, loss

    def _doubt(self, hit: _Hit, link: Link, action: str, child: ControlRow) -> str | None:
        """Return why the rows that are found may not be those that the server changed, or cannot be changed here."""
        if action not in mode_of(child.mode, child.keys).cascades:
            return f"{'its target has the mode ' + child.mode if child.keys else 'it has no key'}."
        if action == "CASCADE" and hit.event == "UPDATE":
            return "keys that change with others are not followed."
        unchecked = any(self._rows.touched(name) & UNCHECKED for name in (hit.table, link.child))
        return "rows were changed with foreign_key_checks=0." if unchecked else None

    def _note(self, hit: _Hit, link: Link, action: str, stale: Stale, lost: Lost) -> Stale:
        """Note the rows that were found; return those that were not found before."""
        child = self._rows.of(link.child)
        assert child is not None  # noqa: S101  (it was looked at)
        if link.child not in self.found:
            self.found[link.child] = FoundRows(self._rows.target_names(link.child, child.keys))
        found = self.found[link.child]
        found.told.add(f"{link.key.constraint} (ON {hit.event} {action})")
        if action == "CASCADE":
            return found.add(stale, lost, None)
        self._untell(link, hit.event, action, f"values of {_dotted(link.child)} became NULL.")
        return found.add(stale, lost, self._rows.target_names(link.child, link.key.columns))

    def _go_below(self, hit: _Hit, link: Link, gone: Stale | None, lost: Lost) -> None:
        """Follow what the rows that went take with them."""
        shown = self._shown(link.child)
        if not shown:
            return
        if link.child not in self._whole or hit.level >= MOST_LEVELS:
            self._untell(link, "DELETE", "CASCADE", f"not all rows of {_dotted(link.child)} are there.")
            return
        if self._rows.filtered(link.child):
            self._untell(link, "DELETE", "CASCADE", f"{_dotted(link.child)} has a filter, so that rows are missing.")
            return
        if gone is not None and gone.keys:
            self._hits.append(_Hit(link.child, "DELETE", lost_with(gone, lost, shown), level=hit.level + 1))
        if lost.at and link.child in self._began and self._is_new("unseen", link.child):
            last = lost.of([lost.at.index(max(lost.at))])
            self._last.append(_Hit(link.child, "DELETE", None, unseen=last))
        if lost.at and self._rows.touched(link.child) & INSERTS and self._is_new("inserted", link.child):
            # One of the same key went before, or it could not be inserted: what names it since before that, too.
            name = link.child
            self._last.append(_Hit(name, "DELETE", lambda columns: self._rows.inserted(name, columns)))

    def _miss(self, hit: _Hit, link: Link, action: str, why: str) -> None:
        """Note that rows of a table may have changed, and go on below it."""
        child = self._rows.of(link.child)
        if child is not None and child.live and child.rows:
            self.missed.setdefault(
                link.child,
                f"its foreign key {link.key.constraint} (ON {hit.event} {action}) may have changed its rows with those "
                f"of {_dotted(hit.table)}, and which ones is not known: {why} It is read again.",
            )
        self._untell(link, hit.event, action, f"nor is it known of {_dotted(link.child)}.")

    def _untell(self, link: Link, event: str, action: str, why: str, last: Place | None = None) -> None:
        """Go on below a table of which it is not known which rows a foreign key changed."""
        gone = (event, action) == ("DELETE", "CASCADE")
        columns = None if gone else tuple(link.key.columns)
        hit = _Hit(link.child, "DELETE" if gone else "UPDATE", None, why, columns=columns, last=last)
        if self._is_new("untold", hit.table, hit.event, columns, last):
            self._hits.append(hit)

    def _shown(self, name: TableName) -> list[str]:
        """Return the columns that rows of other tables name rows of this one by, where its deletes cascade."""
        below = [link for link in self._links.get(name, ()) if link.action("DELETE")]
        return sorted({column for link in below for column in link.key.parent_columns})

    def _is_new(self, *what: object) -> bool:
        if what in self._seen:
            return False
        self._seen.add(what)
        return True


def _dotted(name: TableName) -> str:
    return table_text(name)
