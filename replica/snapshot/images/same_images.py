"""Compare table maps: do row images mean the same under both, or are they written alike at least?"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from replica.protocol.rows.table_map import parse_table_map

if TYPE_CHECKING:
    from replica.protocol.rows.column_def import ColumnDef


@lru_cache(maxsize=256)
def same_images(ours: bytes, theirs: bytes) -> bool:
    """Tell whether row images under the second table map mean the same under the first, which tells all there is."""
    one, two = parse_table_map(ours), parse_table_map(theirs)
    return (
        (one.database, one.table) == (two.database, two.table)
        and len(one.columns) == len(two.columns)
        and all(_same_column(told, seen) for told, seen in zip(one.columns, two.columns, strict=True))
    )


def _same_column(told: ColumnDef, seen: ColumnDef) -> bool:
    if (told.type, told.metadata) != (seen.type, seen.metadata):
        return False
    fields = ("name", "unsigned", "collation", "labels", "geometry")
    return all(getattr(seen, field) in (None, getattr(told, field)) for field in fields)


@lru_cache(maxsize=256)
def same_layout(one: bytes, other: bytes) -> bool:
    """Tell whether values of row images under two table maps of one table are written in the same way."""
    left, right = parse_table_map(one).columns, parse_table_map(other).columns
    return [(column.type, column.metadata) for column in left] == [(column.type, column.metadata) for column in right]
