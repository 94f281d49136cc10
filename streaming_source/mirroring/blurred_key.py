"""Columns that show two values as one: an ENUM or SET with the label '', which is also what no label at all looks like.

In: a table's definition and its indexes. Out: the indexes whose columns tell rows apart in a target as they do on the
server. There the two are different keys; in a target both are the empty text, and one row would take the other's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.schema.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replica.schema.table import ColumnSchema, TableSchema
    from replica.table_reader.indexes import TableIndex


def is_blurred(column: ColumnSchema) -> bool:
    """Tell whether two values of a column look the same in a target."""
    return column.data_type in {"enum", "set"} and "" in (column.labels or ())


def sharp_indexes(definition: TableSchema, indexes: Sequence[TableIndex]) -> list[TableIndex]:
    """Return the indexes without a column that shows two values as one."""
    blurred = {column_key(column.name) for column in definition.columns if is_blurred(column)}
    return [index for index in indexes if not any(column_key(part.column) in blurred for part in index.parts)]


def blurred_names(columns: Iterable[ColumnSchema]) -> list[str]:
    """Return the names of those columns that show two values as one."""
    return [column.name for column in columns if is_blurred(column)]
