"""What a server that is set up well has said of a table that is easily read, to be changed in one place a test."""

from __future__ import annotations

from typing import Any

from replica.schema.table import ColumnSchema, TableSchema
from replica.snapshot.check.facts import IndexPart, ListedTable, TableFacts, TableIndex

VARIABLES = {
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "log_bin": "ON",
    "log_slave_updates": "OFF",
    "rpl_semi_sync_master_enabled": "OFF",
    "tx_isolation": "REPEATABLE-READ",
    "version": "11.8.6-MariaDB-log",
    "wsrep_on": "OFF",
}


def column(name: str, data_type: str = "int", **more: Any) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=data_type, column_type=more.pop("column_type", data_type), **more)


def index(name: str, *columns: str, prefix: bool = False, **more: Any) -> TableIndex:
    parts = tuple(IndexPart(one, prefix, False) for one in columns)
    return TableIndex(**({"name": name, "unique": True, "kind": "BTREE", "ignored": False, "parts": parts} | more))


def listed(name: str = "orders", *columns: ColumnSchema, key: tuple[str, ...] = ("id",), **more: Any) -> ListedTable:
    """A table of the database shop with a primary key over `key`, none if that is empty."""
    columns = columns or (column("id", nullable=False, key=True), column("total"))
    names = [one.name for one in columns]
    primary = tuple(names.index(one) for one in key)
    schema = TableSchema(database="shop", table=name, columns=columns, primary_key=primary)
    indexes = (index("PRIMARY", *key),) if key else ()
    return ListedTable(**({"name": ("shop", name), "schema": schema, "indexes": indexes} | more))


def told(*tables: ListedTable, **more: Any) -> TableFacts:
    variables = VARIABLES | more.pop("variables", {})
    return TableFacts(account="repl@%", variables=variables, tables=tables, **more)
