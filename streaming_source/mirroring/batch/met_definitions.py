"""Compare the definition that a mirror has of a table with what the rows of a micro-batch say of it.

In: the table maps that rows were met with, the table's definition. Out: why the rows are not of that definition; '' if
they are. ALTER TABLE under sql_log_bin=0, and one that a server does not log,
are in no statement of the stream: they show here, before a value is missing or stands under another name.
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
"""The place of table id and flags in a TABLE_MAP."""


def unreadable_rows(changes: TableChanges) -> str:
    """Return why rows of a batch cannot be decoded; '' if all can."""
    return changes.fault or next((met.fault for met in changes.maps if met.fault), "")


def other_definition_of(changes: TableChanges, table: TableSchema) -> str:
    """Return why rows that a batch has of a table are not of a definition."""
    if changes.fault is not None:
        return changes.fault
    reasons = (met.fault or _difference(met.content, table, read=met.read) for met in changes.maps)
    return next((why for why in reasons if why), "")


@lru_cache(maxsize=4096)
def _difference(content: bytes, table: TableSchema, *, read: bool) -> str:
    """Compare a table map with a definition, once: they are the same in nearly all batches."""
    return difference(parse_table_map(_WITHOUT_ID + content), _as_read(table) if read else table, computed=not read)


def _as_read(table: TableSchema) -> TableSchema:
    """Return a definition as maps of rows that were read from the table have it: labels are in UTF-8."""
    columns = (
        replace(column, charset="utf8mb4") if column.labels is not None and column.charset != "binary" else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))
