"""Select list of a table: one expression per column, chosen so that row images can be built from the result.

The list names all columns, because `*` omits INVISIBLE columns and the hidden row period. The expressions have no
aliases: ORDER BY would take an alias for the column, and sort by the cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.types.entry import ResultType
from replica.rows.types.kinds import Transcoding
from replica.rows.types.types import NAMES, type_of
from replica.schema.text.naming import quoted

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema, TableSchema


_SHORT_YEAR: Final = ResultType(
    "YEAR(CAST({c} AS DATE)) - 1900", (ColumnType.LONG, ColumnType.LONGLONG), ColumnType.YEAR, Transcoding.NUMBER
)
"""Result type of YEAR(2). After an ALTER, the server still stores four digits; SELECT returns the last two as a number.
"""


def result_type(column: ColumnSchema) -> ResultType:
    """Return how a column of this type is selected; SchemaError for a type that the registry lacks."""
    if column.column_type.startswith("year(2)"):
        return _SHORT_YEAR
    found = type_of(column).result_set
    if found is None:
        raise SchemaError(
            f"Column {column.name} has the type {column.column_type}, which no table of MariaDB has.",
            hint="Leave the table out.",
        )
    return found


def select_list(schema: TableSchema) -> str:
    """Return the select list of a table, one expression per column in table order."""
    return ", ".join(_expression(column) for column in schema.columns)


def _expression(column: ColumnSchema) -> str:
    size = NAMES[column.data_type].logged or column.octets or 0
    return result_type(column).expression.replace("{n}", str(size)).replace("{c}", quoted(column.name))
