"""Tell how many rows targets have, for the settings that they are written with; count where that may be wrong by now.

In: the work on a table in a batch. Out: the most rows that its target can have behind it. The control table tells how
many rows and changes were applied since the beginning, which is too much by each update and delete: after a day of
changes a small table would pass for a large one. So a target is counted when it may have passed a limit or doubled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming_source.mirroring.faults import SPARK_ERRORS
from streaming_source.mirroring.merge_settings import MOST_ROWS, TargetSize

if TYPE_CHECKING:
    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.table_work import TableWork

_DOUBLED = 2


class _Counted(NamedTuple):
    """A count of a target, made when so many rows and changes were applied."""

    applied: int = 0
    rows: int = 0


class TargetSizes:
    """The counts of the targets of a mirror, in this start of it."""

    def __init__(self) -> None:
        self._counted: dict[TableName, _Counted] = {}

    def of(self, work: TableWork) -> TargetSize:
        """Return the size of a target behind a batch; several threads may ask for different ones."""
        name, applied = work.row.name, work.row.rows
        last = self._counted.get(name, _Counted())
        if applied < last.applied:  # the target was made again
            last = _Counted()
        rows = last.rows + applied - last.applied
        if rows > max(MOST_ROWS, _DOUBLED * last.rows):
            try:
                counted = work.count()
            except SPARK_ERRORS:  # what is wrong with the target, its work meets and tells
                counted = None
            if counted is not None:
                rows = counted
                self._counted[name] = _Counted(applied, rows)
        return TargetSize(rows + work.facts.rows, work.facts.changes // (1 + len(work.statements)))
