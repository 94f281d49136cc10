"""Server's catalog together with the position of the binlog at which the catalog was valid, as a conversation.

`tables_and_origin` returns the selected tables and their `CatalogOrigin`. A server may change tables while they are
read, so they are read before and after the position, until both readings are equal. If rows describe themselves, one
reading is enough. A server whose tables change at each reading is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.handshake.registration import Query, Steps
from replica.protocol.gtid import GtidPosition
from replica.rows.types.values.numbers import decimals_of
from streaming_source.schema.table_state import CatalogOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema, TableSchema

READINGS: Final = 10
"""Most readings of the catalog. A reading takes milliseconds, so ALTERs of one selection rarely hit each of them."""
OPAQUE_TYPES: Final = frozenset({"uuid", "inet4", "inet6", "vector"})
"""Types that a row shows as BINARY or VARBINARY, whatever metadata it has."""
_PLACE: Final = "SELECT @@{position}, @@binlog_row_metadata"
_DATABASES: Final = "SELECT SCHEMA_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA"


def tables_and_origin(
    read: Callable[[], Steps[dict[TableName, TableSchema]]], selects: Callable[[str], bool], *, from_primary: bool
) -> Steps[tuple[dict[TableName, TableSchema], CatalogOrigin]]:
    """Return the tables that `read` reads, and their origin.

    Args:
        read: the conversation that reads the selected tables.
        selects: whether new tables of a database would be selected.
        from_primary: whether the server writes the binlog that is read. A server that applies it has its position in
            another variable.

    Raises:
        SchemaError: an error of `read`; or the tables differ at each reading.
    """
    place = _PLACE.format(position="gtid_binlog_pos" if from_primary else "gtid_current_pos")
    tables = yield from read()
    for _ in range(READINGS):
        ((position, metadata),) = yield Query(place)
        described = str(metadata).upper() == "FULL" and all(map(_describes_itself, tables.values()))
        databases = {str(name): str(collation) for name, collation in (yield Query(_DATABASES))}
        reread = tables if described else (yield from read())
        if reread == tables:
            kept = tuple(sorted((name, collation) for name, collation in databases.items() if selects(name)))
            return tables, CatalogOrigin(GtidPosition.parse(str(position or "")), described, kept)
        tables = reread
    raise SchemaError(
        "the selected tables were changed each time that they were read.",
        hint="Start the query when their ALTERs are done, or set binlog_row_metadata=FULL on the primary.",
    )


def _describes_itself(table: TableSchema) -> bool:
    """Return True if rows with full metadata have all attributes that the catalog has."""
    return not any(map(_is_unknown, table.columns))


def _is_unknown(column: ColumnSchema) -> bool:
    return (
        column.data_type in OPAQUE_TYPES
        or decimals_of(column.column_type) is not None
        or (column.period is not None and not column.hidden)
    )
