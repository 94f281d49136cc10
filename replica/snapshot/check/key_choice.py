"""Choose the key by which a table is read in chunks.

`choose_key` returns the primary key, or else the best unique index over NOT NULL columns, or None. An index is no key
if it is a prefix index, ignored, or not a BTREE. The same holds for an index with FLOAT or DOUBLE columns, or with
columns that the definition does not show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.rows.types.keys import is_ordered
from replica.rows.types.kinds import KeyForm
from replica.rows.types.types import type_of
from replica.schema.text.naming import column_key
from replica.snapshot.rows.row_block import TableKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.schema.table import ColumnSchema, TableSchema
    from replica.snapshot.check.indexes import TableIndex

PRIMARY: Final = "PRIMARY"
_BTREE: Final = "BTREE"
_LONG: Final = frozenset({KeyForm.BYTES, KeyForm.TEXT})


def choose_key(schema: TableSchema, indexes: Sequence[TableIndex]) -> TableKey | None:
    """Return the key by which a table is read; None if the table has no usable key.

    Unique indexes rank in this order: those with ordered keys, those with fewer columns, those with numbers only, by
    name.
    """
    keys = [key for key in (_key(schema, index) for index in indexes) if key is not None]
    return min(keys, key=lambda key: _rank(schema, key), default=None)


def _key(schema: TableSchema, index: TableIndex) -> TableKey | None:
    if not index.unique or index.ignored or index.kind != _BTREE:
        return None
    numbers = {column_key(column.name): number for number, column in enumerate(schema.columns)}
    columns: list[int] = []
    for part in index.parts:
        number = numbers.get(column_key(part.column))
        if number is None or part.prefix:
            return None
        column = schema.columns[number]
        if column.period == "end" and columns and part is index.parts[-1]:
            continue  # the server appends this column to each unique key; all current rows have the same value
        if column.nullable or type_of(column).key is None:
            return None
        columns.append(number)
    # An index scan returns rows in the order of all columns only if all columns have the same sort direction.
    one_way = len({part.descending for part in index.parts}) == 1
    ordered = one_way and all(_is_ordered(schema.columns[number]) for number in columns)
    return TableKey(index.name, tuple(columns), ordered)


def _is_ordered(column: ColumnSchema) -> bool:
    form = type_of(column).key
    return form is not None and is_ordered(form, column)


def _rank(schema: TableSchema, key: TableKey) -> tuple[bool, bool, int, bool, str]:
    long = any(type_of(schema.columns[number]).key in _LONG for number in key.columns)
    return key.index != PRIMARY, not key.ordered, len(key.columns), long, key.index
