"""Which tables of the stream a query wants, and what its rows are decoded with: the decoder's `TableResolver`.

Plain values that pickle into tasks. Names are compared as the binlog spells them; `*` stands for any text, in database
and table alike. The catalog's word on a table (names, signs and labels the stream may lack) was read when the query
was loaded; a table that was created later must describe itself (binlog_row_metadata=FULL), or it is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from replica.schema.patterns import matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.protocol.table_map import TableMapEvent
    from replica.rows.tables import TableTarget
    from replica.schema.table import TableSchema

Catalog: TypeAlias = "Mapping[tuple[str, str], TableSchema]"
"""Tables by (database, table)."""


@dataclass(frozen=True)
class SelectedTables:
    """`patterns` as in the option tables, or the one name of the option table; `catalog` by (database, table)."""

    patterns: tuple[str, ...]
    catalog: Catalog

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        from replica.rows.tables import TableTarget

        name = (table_map.database, table_map.table)
        if not matcher(self.patterns).fullmatch(".".join(name)):
            return None
        return TableTarget(self.catalog.get(name))
