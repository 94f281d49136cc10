"""Choose the key that a table is read by, from its unique indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.table_reader.chunk import TableKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.schema.table import ColumnSchema, TableSchema
    from replica.table_reader.indexes import TableIndex

_INEXACT: Final = frozenset({"float", "double", "geometry", "json"})


def choose_key(schema: TableSchema, indexes: Sequence[TableIndex]) -> TableKey | None:
    """Return the primary key if it is usable, else an index that is ordered, else any usable one; None for none."""
    keys = [key for key in (_key(schema, index) for index in indexes) if key is not None]
    return min(keys, key=lambda key: (key.index != "PRIMARY", not key.ordered, key.index), default=None)


def _key(schema: TableSchema, index: TableIndex) -> TableKey | None:
    numbers = {column.name.casefold(): number for number, column in enumerate(schema.columns)}
    columns = [numbers.get(part.column.casefold(), -1) for part in index.parts]
    usable = index.unique and not index.ignored and index.kind == "BTREE" and -1 not in columns
    if not usable or any(part.prefix for part in index.parts):
        return None
    parts = [schema.columns[number] for number in columns]
    if any(part.nullable or part.data_type in _INEXACT for part in parts):
        return None
    one_way = len({part.descending for part in index.parts}) == 1
    return TableKey(index.name, tuple(columns), one_way and all(map(_ordered, parts)))


def _ordered(column: ColumnSchema) -> bool:
    return column.labels is not None or column.collation in (None, "binary")
