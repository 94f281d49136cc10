"""Decision about a distinct table map: whether its rows are selected, and which definition decodes them."""

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
    """The definition that decodes the rows of a selected table, and the selection of its rows.

    Attributes:
        schema: The catalog's definition, if the stream does not describe the table completely.
        operations: The selected operations, one bit 1 << OP_* each.
        delivered: The selected operations that a filter keeps. Filtered rows are not delivered, but the column `last`
            has the values that it has without the filter.
        columns: The names that VARIANT contains; None for all.
        skip_unchanged: True to skip updates that change no column that is read.
    """

    schema: TableSchema | None = None
    operations: int = r.ALL_OPERATIONS
    delivered: int = r.ALL_OPERATIONS
    columns: ColumnMatcher | None = None
    skip_unchanged: bool = False


class TableResolver(Protocol):
    """Interface that decides, per distinct table map, whether its rows are selected."""

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition to read the table with, or None to skip the table."""
