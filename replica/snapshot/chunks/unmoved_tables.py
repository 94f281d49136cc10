"""Tables whose rows could not be moved to the position of a batch: read again, from a later place, or left.

In: a table, and why it did not go. Out: it is read again, so often as that may help; then an error, or, where the
caller follows each table, a table of which no more is read.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from replica.schema.patterns import table_text
from replica.snapshot.images.partial_rows import PartialRowError
from replica.snapshot.pace import MOST_UNSETTLED
from replica.snapshot.reconcile.whole_rows import UnlikeRowsError, unlike_error, unsettled_error
from replica.snapshot.reconcile.window import location_at

if TYPE_CHECKING:
    from replica.errors import ReplicaError
    from replica.relay_log.location import RelayLocation
    from replica.schema.known_tables import TableName
    from replica.snapshot.chunks.schedule import ReadingList
    from replica.snapshot.chunks.table_reading import TableReading
    from replica.snapshot.pace import Pace
    from replica.snapshot.reconcile.reconciler import ChunkReconciler

MOST_UNKNOWN: Final = 10
"""How often a table is read again because row images leave out columns of rows that it did not have yet: each time a
change in ten seconds may do that again, so that it takes a pause of the writers, or none that leaves columns out."""

_log = logging.getLogger(__name__)


class UnmovedTables:
    """The tables of one query, each with how often it was read again since rows of it were last delivered."""

    def __init__(self, pace: Pace, tables: ReadingList, mover: ChunkReconciler) -> None:
        self._pace = pace
        self._tables = tables
        self._mover = mover
        self._unknown: Counter[TableName] = Counter()
        self._unsettled: Counter[TableName] = Counter()

    def forget(self, table: TableReading) -> None:
        """Begin to count again: rows of the table are delivered, or no more of them are read."""
        del self._unknown[table.name], self._unsettled[table.name]

    def read_better(self, table: TableReading, error: Exception, v: RelayLocation) -> None:
        """Read a table again whose rows could not be moved to a place."""
        if isinstance(error, PartialRowError):
            self._read_later(table, error.place)
        elif isinstance(error, UnlikeRowsError):
            self.read_settled(table, v, unlike=True)
        else:
            self._tables.read_again(table)

    def read_settled(self, table: TableReading, place: RelayLocation, *, unlike: bool = False) -> None:
        """Read a table without a key again, from a position on that is behind a change; `unlike`: its rows were other
        ones than the changes have.
        """
        self._unsettled[table.name] += 1
        if self._unsettled[table.name] >= MOST_UNSETTLED:
            self._leave(table, unlike_error(table.name) if unlike else unsettled_error(table.name, MOST_UNSETTLED))
            return
        _log.info("%s has no key, and was changed while it was read: it is read again", table_text(table.name))
        self._tables.read_again(table, not_before=place)

    def _read_later(self, table: TableReading, place: int) -> None:
        """Read a table again when what its images leave out is surely seen."""
        self._unknown[table.name] += 1
        if self._unknown[table.name] > MOST_UNKNOWN:
            self._leave(table, self._mover.partial_error(table.name, place))
            return
        self._tables.read_again(table, not_before=location_at(place))

    def _leave(self, table: TableReading, error: ReplicaError) -> None:
        """Read no more of a table that cannot be moved to a place; raise why, where no one follows each table."""
        if not self._pace.table_by_table:
            raise error
        self.forget(table)
        self._tables.refuse(table, table.life, str(error))
