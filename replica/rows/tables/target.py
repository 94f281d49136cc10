"""The resolver's word on each distinct table map: whether its rows are wanted, and what they are read with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from replica.rows.scan import records as r

if TYPE_CHECKING:
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.schema.patterns import ColumnMatcher
    from replica.schema.table import TableSchema


@dataclass(frozen=True, slots=True)
class TableTarget:
    """The definition that a wanted table's rows are read with, and which of them are wanted.

    `schema`: the catalog's word on the table, where the stream does not tell enough. `operations`: those selected, a
    bit 1 << OP_* each. `delivered`: those of them that a filter leaves; the rows that it takes away do not come, but
    `last` of the others is what it would be without the filter. `columns`: the names that VARIANT shows, None: all.
    `skip_unchanged`: leave out updates that change no column that is read.
    """

    schema: TableSchema | None = None
    operations: int = r.ALL_OPERATIONS
    delivered: int = r.ALL_OPERATIONS
    columns: ColumnMatcher | None = None
    skip_unchanged: bool = False


class TableResolver(Protocol):
    """A resolver that says of each distinct table map whether its rows are wanted."""

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return what to read the table with, or None to leave it out."""
