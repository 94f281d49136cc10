"""The select list of a table: the expressions by which its rows are asked for, so that row images can be made of them.

All columns of the definition by name, because `*` leaves out INVISIBLE ones and the hidden row period. Names that the
expressions get are of no use: ORDER BY would take an alias for the column, and sort by the cast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.types.entry import ResultType
from replica.rows.types.kinds import Transcoding
from replica.rows.types.registry import NAMES
from replica.rows.types.types import type_of

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema, TableSchema


_SHORT_YEAR: Final = ResultType(
    "YEAR(CAST({c} AS DATE)) - 1900", (ColumnType.LONG, ColumnType.LONGLONG), ColumnType.YEAR, Transcoding.NUMBER
)
"""YEAR(2): the server stores all four digits, as an ALTER left them, and as a number it gives the last two."""


def quoted(name: str) -> str:
    """Quote the name of a column, table or database."""
    return f"`{name.replace('`', '``')}`"


def result_type(column: ColumnSchema) -> ResultType:
    """Return how a column's type is asked for; SchemaError for one that the registry lacks."""
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
    """Write the select list of a table: one expression a column, in table order."""
    return ", ".join(_asked(column) for column in schema.columns)


def _asked(column: ColumnSchema) -> str:
    size = NAMES[column.data_type].logged or column.octets or 0
    return result_type(column).asked.replace("{n}", str(size)).replace("{c}", quoted(column.name))
