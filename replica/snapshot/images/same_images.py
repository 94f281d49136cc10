"""Compare two table maps: whether row images have the same meaning, or at least the same layout."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from replica.protocol.rows.table_map import parse_table_map

if TYPE_CHECKING:
    from replica.protocol.rows.column_def import ColumnDef


@lru_cache(maxsize=256)
def same_images(ours: bytes, theirs: bytes) -> bool:
    """Return True if row images under table map `theirs` have the same meaning under `ours`, which has full
    metadata.
    """
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
    """Return True if two table maps of one table encode values in the same way."""
    left, right = parse_table_map(one).columns, parse_table_map(other).columns
    return [(column.type, column.metadata) for column in left] == [(column.type, column.metadata) for column in right]
