"""Compare the mirror's definition of a table with the table maps of a micro-batch.

In: the table maps of the rows, the definition of the table. Out: why the rows do not match the definition; '' if they
do. ALTER TABLE under sql_log_bin=0, and an ALTER that a server does not log, are no statements of the stream. This
check finds them before a value is lost or written to another column.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from replica.protocol.rows.table_map import parse_table_map
from replica.rows.tables.match import difference

if TYPE_CHECKING:
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.batch.batch_facts import TableChanges

_WITHOUT_ID: Final = bytes(8)
"""Zeros in place of the table id and flags of a TABLE_MAP."""


def unreadable_rows(changes: TableChanges) -> str:
    """Return why rows of a micro-batch cannot be decoded; '' if all can."""
    return changes.fault or next((met.fault for met in changes.maps if met.fault), "")


def other_definition_of(changes: TableChanges, table: TableSchema) -> str:
    """Return why rows of a table in a micro-batch do not match a definition; '' if they do."""
    if changes.fault is not None:
        return changes.fault
    reasons = (met.fault or _difference(met.content, table, read=met.read) for met in changes.maps)
    return next((why for why in reasons if why), "")


@lru_cache(maxsize=4096)
def _difference(content: bytes, table: TableSchema, *, read: bool) -> str:
    """Compare a table map with a definition. It is cached: both are the same in nearly all micro-batches."""
    return difference(parse_table_map(_WITHOUT_ID + content), _as_read(table) if read else table, computed=not read)


def _as_read(table: TableSchema) -> TableSchema:
    """Return a definition as the table maps of snapshot rows have it: their labels are in UTF-8."""
    columns = (
        replace(column, charset="utf8mb4") if column.labels is not None and column.charset != "binary" else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))
