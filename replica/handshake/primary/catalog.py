"""The server's catalog over a logged-in connection, as a generator of steps that returns current table definitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.handshake.registration import MAX_CATALOG_BYTES, Query, Steps
from replica.schema.catalog import Selection, columns_query, keys_query, read_catalog
from replica.schema.labels import doubtful_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.schema.table import TableSchema


def read_tables(selection: Sequence[Selection] = ()) -> Steps[dict[tuple[str, str], TableSchema]]:
    """Return the selected tables by (database, table).

    Args:
        selection: pairs of a database and a table, or of a database and None for all its tables.

    Raises:
        SchemaError: a table that is selected by name does not exist, or the account may not see it.
    """
    columns = yield Query(*columns_query(selection), MAX_CATALOG_BYTES)
    keys = yield Query(*keys_query(selection), MAX_CATALOG_BYTES)
    tables = read_catalog(columns, keys)
    for name, schema in tables.items():
        told = list(schema.columns)
        for doubtful in doubtful_labels(schema):
            told[doubtful.column] = doubtful.answered((yield Query(doubtful.query())))
        tables[name] = replace(schema, columns=tuple(told))
    # The server returns names in its own spelling, which differs from the selection with lower_case_table_names.
    found = {(database.lower(), table.lower()) for database, table in tables}
    missing = [f"{d}.{t}" for d, t in selection if t is not None and (d.lower(), t.lower()) not in found]
    if missing:
        does_not = "does not exist" if len(missing) == 1 else "do not exist"
        raise SchemaError(
            f"{', '.join(missing)} {does_not} on the server, or the account may not see it.",
            hint="Check the spelling, and GRANT SELECT on it to the account.",
        )
    return tables
