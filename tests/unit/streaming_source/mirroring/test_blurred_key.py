"""Indexes whose columns show two values as one are no keys of targets."""

from __future__ import annotations

from replica.schema.table import ColumnSchema, TableSchema
from replica.table_reader.indexes import IndexPart, TableIndex
from streaming_source.mirroring.blurred_key import blurred_names, sharp_indexes


def column(name: str, kind: str, labels: tuple[str, ...] | None = None) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=kind, column_type=kind, nullable=False, labels=labels)


TABLE = TableSchema(
    database="d",
    table="t",
    columns=(column("Kind", "enum", ("a", "")), column("tags", "set", ("", "b")), column("id", "int")),
)


def index(name: str, *columns: str) -> TableIndex:
    parts = tuple(IndexPart(one, prefix=False, descending=False) for one in columns)
    return TableIndex(name=name, unique=True, kind="BTREE", ignored=False, parts=parts)


def test_those_without_such_a_column_are_left() -> None:
    both, tags, alone = index("PRIMARY", "kind", "id"), index("u", "tags"), index("v", "id")
    assert sharp_indexes(TABLE, [both, tags, alone]) == [alone]
    assert blurred_names(TABLE.columns) == ["Kind", "tags"]
    assert blurred_names([column("k", "enum", ("a", "b")), column("t", "varchar")]) == []
