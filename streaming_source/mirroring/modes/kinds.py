"""The columns that a target has of its mode, and what a table may not have beside them.

In: the name of a mode. Out: its columns as they stand in a target. Refused: a table with a column of such a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from streaming_source.queries.latest_changes import ADDED
from streaming_source.ruling.target_columns import TargetColumn
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.schema.target_modes import CURRENT, OWN_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEVER_NULL: Final = frozenset({"_deleted", "_from_gtid", "_from_sequence", "_current"})
CLOSE: Final = "_close"
"""The column by which a MERGE of versions tells what it closes."""


def own_columns(mode: str) -> tuple[TargetColumn, ...]:
    """Return the columns that targets of a mode have behind those of their table."""
    return tuple(
        TargetColumn(column.name, column.type, column.name not in _NEVER_NULL, column.help.partition(";")[0])
        for column in OWN_COLUMNS[mode]
    )


def check_names(table: str, mode: str, columns: Iterable[TargetColumn]) -> None:
    """Refuse a table with a column that the mode needs the name of.

    Raises:
        SchemaError: there is one.
    """
    needed = {*ADDED, CLOSE, *(column.name for column in own_columns(mode))} if mode != CURRENT else {*ADDED}
    for column in columns:
        if spark_column_key(column.name) in needed:
            raise SchemaError(
                f"{table} has a column {column.name}, and its target in the mode {mode} needs that name.",
                hint="Give the column another name there (rename in the table's rule), or leave the table out.",
            )
