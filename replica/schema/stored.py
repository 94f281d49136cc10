"""Table definitions as JSON text, to store the definition of a table at a position of the binlog.

The JSON omits default values and has its keys in one order, so equal tables give equal text. Text of another format, or
of a newer version, is an error.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

from replica.errors import SchemaError
from replica.schema.table import ColumnSchema, TableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.schema.known_tables import TableName

VERSION: Final = 1
_Value = TypeVar("_Value", ColumnSchema, TableSchema)


def tables_to_json(tables: Mapping[TableName, TableSchema]) -> str:
    """Return the tables as compact JSON, in the order of their names."""
    stored = [_told(tables[name]) for name in sorted(tables)]
    return json.dumps({"v": VERSION, "tables": stored}, separators=(",", ":"), ensure_ascii=False)


def tables_from_json(text: str) -> dict[TableName, TableSchema]:
    """Parse the text of `tables_to_json`.

    Raises:
        SchemaError: The text is damaged, or a newer version wrote it.
    """
    try:
        value = json.loads(text)
        version = value["v"]
        tables = [_read(TableSchema, table) for table in value["tables"]] if version == VERSION else []
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SchemaError(f"the stored tables are damaged ({type(error).__name__}: {error}).") from None
    if version != VERSION:
        raise SchemaError(
            f"the stored tables have version {version}; this version reads {VERSION}.",
            hint="Upgrade spark-mariadb-binlog to the version that wrote them.",
        )
    return {(table.database, table.table): table for table in tables}


def _told(value: ColumnSchema | TableSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        told = getattr(value, field.name)
        if field.name == "columns":
            found[field.name] = [_told(column) for column in told]
        elif told != field.default:
            found[field.name] = told
    return found


def _read(kind: type[_Value], value: dict[str, Any]) -> _Value:
    told: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items()}
    if kind is TableSchema:
        told["columns"] = tuple(_read(ColumnSchema, column) for column in value["columns"])
    return kind(**told)
