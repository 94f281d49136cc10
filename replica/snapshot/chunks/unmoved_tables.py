"""Handle tables whose rows cannot be reconciled with the position of a batch.

`UnmovedTables` reads such a table again, from a later watermark if that helps, up to a limit. After that it raises an
error. If the caller handles errors table by table, it stops reading the table instead.
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
"""Maximum retries of a table because row images omit columns of rows that the chunk does not have yet. Each change
within ten seconds can cause it again. It ends with a pause of the writers, or with changes that omit no column.
"""

_log = logging.getLogger(__name__)


class UnmovedTables:
    """Retry counts of one query's tables since the last delivery of their rows."""

    def __init__(self, pace: Pace, tables: ReadingList, mover: ChunkReconciler) -> None:
        self._pace = pace
        self._tables = tables
        self._mover = mover
        self._unknown: Counter[TableName] = Counter()
        self._unsettled: Counter[TableName] = Counter()

    def forget(self, table: TableReading) -> None:
        """Reset the counts of a table after a delivery, or after its reading has ended."""
        del self._unknown[table.name], self._unsettled[table.name]

    def read_better(self, table: TableReading, error: Exception, v: RelayLocation) -> None:
        """Read a table again after its rows could not be reconciled with `v`."""
        if isinstance(error, PartialRowError):
            self._read_later(table, error.place)
        elif isinstance(error, UnlikeRowsError):
            self.read_settled(table, v, unlike=True)
        else:
            self._tables.read_again(table)

    def read_settled(self, table: TableReading, place: RelayLocation, *, unlike: bool = False) -> None:
        """Read a table without a key again, from a watermark after a change.

        `unlike`: the rows that were read did not match the before images of the changes.
        """
        self._unsettled[table.name] += 1
        if self._unsettled[table.name] >= MOST_UNSETTLED:
            self._leave(table, unlike_error(table.name) if unlike else unsettled_error(table.name, MOST_UNSETTLED))
            return
        _log.info("%s has no key and changed during its read: it is re-snapshotted", table_text(table.name))
        self._tables.read_again(table, not_before=place)

    def _read_later(self, table: TableReading, place: int) -> None:
        """Read a table again after the snapshot surely sees the change whose image omits columns."""
        self._unknown[table.name] += 1
        if self._unknown[table.name] > MOST_UNKNOWN:
            self._leave(table, self._mover.partial_error(table.name, place))
            return
        self._tables.read_again(table, not_before=location_at(place))

    def _leave(self, table: TableReading, error: ReplicaError) -> None:
        """Stop reading a table that cannot be reconciled; raise the error unless errors are handled table by table."""
        if not self._pace.table_by_table:
            raise error
        self.forget(table)
        self._tables.refuse(table, table.life, str(error))
