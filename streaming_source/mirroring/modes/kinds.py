"""Metadata columns that each mode adds to a target, and the column names that a table cannot have because of them.

In: the name of a mode. Out: its columns, as a target has them. Refused: a table with a column of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.schema.target_modes import CURRENT, OWN_COLUMNS
from streaming_source.sinks.latest_changes import ADDED
from streaming_source.transforms.target_columns import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEVER_NULL: Final = frozenset({"_deleted", "_from_gtid", "_from_sequence", "_current"})
CLOSE: Final = "_close"
"""Column that marks the closing rows of a MERGE of versions."""


def own_columns(mode: str) -> tuple[TargetColumn, ...]:
    """Return the columns that a target of this mode has after the columns of its table."""
    return tuple(
        TargetColumn(column.name, column.type, column.name not in _NEVER_NULL, column.help.partition(";")[0])
        for column in OWN_COLUMNS[mode]
    )


def check_names(table: str, mode: str, columns: Iterable[TargetColumn]) -> None:
    """Refuse a table with a column whose name the mode needs.

    Raises:
        SchemaError: the table has such a column.
    """
    needed = {*ADDED, CLOSE, *(column.name for column in own_columns(mode))} if mode != CURRENT else {*ADDED}
    for column in columns:
        if spark_column_key(column.name) in needed:
            raise SchemaError(
                f"{table} has a column {column.name}, and its target in the mode {mode} needs that name.",
                hint="Give the column another name in the target (rename in the table's rule), or leave the table out.",
            )
