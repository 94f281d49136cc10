"""Columns of the one table of a typed query, as its rows show them.

`catalog_table_columns` takes the table from the catalog, and `logged_table_columns` from its rows. Both return the
`TableColumn`s that the option `columns` selects, in the table's order. A name in `columns` that the table does not have
is an error, and so is a selected column that cannot be decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import MAY_READ, ConfigError
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import output_column
from replica.schema.effects.history import SchemaHistory
from replica.schema.patterns import table_text
from streaming_source.schema.row_schema import TableColumn
from streaming_source.schema.spark_names import refuse_clash
from streaming_source.selection.resolver import check_columns, column_matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema


def catalog_table_columns(
    table: TableSchema, policy: ValuePolicy, chosen: Sequence[str] | None = None
) -> tuple[TableColumn, ...]:
    """Return the columns of a table that the catalog or DDL describes. `chosen`: the option `columns`."""
    wanted = column_matcher(chosen or ())
    check_columns(chosen or (), [column.name for column in table.columns], f"{table.name} does not have")
    found = []
    for column in table.columns:
        if wanted is None or wanted.fits(column.name):
            output = output_column(column, policy)
            about = (column.comment, column.column_type, column.nullable, column.key)
            found.append(TableColumn(output.name, output.spark, *about))
    refuse_clash(table.name, [column.name for column in found])
    return tuple(found)


def logged_table_columns(
    table_map: TableMapEvent, schema: TableSchema | None, policy: ValuePolicy, chosen: Sequence[str] | None = None
) -> tuple[TableColumn, ...]:
    """Return the columns of a table from its rows, with metadata from `schema` if it is known.

    Raises:
        SchemaError: neither the rows nor `schema` name the columns; or a column cannot be decoded.
    """
    layout = compile_layout(table_map, schema, None, policy, shown=column_matcher(chosen or ()))
    check_columns(
        chosen or (), [plan.name for plan in layout.columns], f"{table_map.database}.{table_map.table} does not have"
    )
    known = {column.name: column for column in schema.columns} if schema else {}
    logged = {plan.name: column for plan, column in zip(layout.columns, table_map.columns, strict=True)}
    key = any(column.is_key for column in table_map.columns)
    found = []
    for output in layout.outputs:
        declared, column = known.get(output.name), logged[output.name]
        found.append(
            TableColumn(
                output.name,
                output.spark,
                declared.comment if declared else "",
                declared.column_type if declared else "",
                column.nullable,
                (declared.key if declared else None) if not key else column.is_key,
            )
        )
    refuse_clash(table_text((table_map.database, table_map.table)), [column.name for column in found])
    return tuple(found)


# `declared_tables` returns the tables in the file that the option schemaFile names. A file that cannot be read, or has
# other statements than CREATE TABLE, is an error.


def declared_tables(path: str | None) -> SchemaHistory | None:
    """Return the tables of the option schemaFile; None if the option is not set.

    Raises:
        ConfigError: the file cannot be read.
        SchemaError: the table of a CREATE TABLE statement in it cannot be determined.
    """
    if path is None:
        return None
    try:
        return SchemaHistory.from_file(path)
    except OSError as error:
        raise ConfigError(f"schemaFile {path} cannot be read: {error.strerror}.", hint=MAY_READ) from None
