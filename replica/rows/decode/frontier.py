"""Delivered part of the tables while their snapshot is running, and open ends of a range, as plain picklable values.

`DeliveredKeys` says which rows of the stream count: tables are delivered in the order of their names, and a table in
the order of its key. A change counts if its row lies inside the delivered part. The snapshot delivers other rows later.
`OpenEnds` has the facts of a range that begins or ends inside a transaction. This module imports no array package,
because each Spark worker loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema


class OpenTable(NamedTuple):
    """A table whose delivered part does not follow from its name.

    Attributes:
        name: Database and table.
        columns: The catalog's definitions of the key columns, in key order.
        upto: The canonical bytes of the last delivered key; None if the whole table is delivered.
    """

    name: tuple[str, str]
    columns: tuple[ColumnSchema, ...]
    upto: bytes | None


@dataclass(frozen=True, slots=True)
class DeliveredKeys:
    """The delivered part of a stream's tables.

    Attributes:
        after: The last delivered table, in the byte order of UTF-8; None if no table is delivered. Every table up to
            this name is delivered, except those in `open` and `pending`.
        open: Tables with their own delivered part.
        pending: Tables of which nothing is delivered, whatever their names.
    """

    after: tuple[str, str] | None
    open: tuple[OpenTable, ...] = ()
    pending: tuple[tuple[str, str], ...] = ()

    def of(self, name: tuple[str, str]) -> OpenTable | bool:
        """Return True if the table is delivered, False if not, or its OpenTable if a part of it is."""
        for table in self.open:
            if table.name == name:
                return table.upto is None or table
        if name in self.pending or self.after is None:
            return False
        return tuple(map(str.encode, name)) <= tuple(map(str.encode, self.after))


class OpenEnds(NamedTuple):
    """Open ends of a range, whose first and last group may be incomplete.

    Attributes:
        rows_before: Row changes of the first group before the range.
        rows_follow: True if another range has delivered rows of the last group, so that no row here is the
            transaction's last.
        committed: True if the range is a part of a prepared XA group, after the GTID event of its XA COMMIT. Its rows
            are delivered at their place in the range.
    """

    rows_before: int = 0
    rows_follow: bool = False
    committed: bool = False


WHOLE = OpenEnds()
