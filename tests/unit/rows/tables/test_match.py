from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.rows.tables.match import catalog_columns
from replica.schema.table import ColumnSchema, TableSchema
from tests.kit.binlog.parsed import BINARY, LATIN1, UTF8MB4, column, table_map

PERIOD = column("row_start", ColumnType.TIMESTAMP2, b"\6"), column("row_end", ColumnType.TIMESTAMP2, b"\6")
HASH = column("DB_ROW_HASH_1", ColumnType.LONGLONG)


def known(name: str, data_type: str, **told: Any) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=data_type, column_type=data_type, **told)


def match(wire: list[Any], *columns: ColumnSchema, named: bool, **told: Any) -> list[ColumnSchema | None]:
    if not named:
        wire = [replace(c, name=None) for c in wire]
    schema = TableSchema(database="shop", table="orders", columns=columns, **told)
    return catalog_columns(table_map(*wire), schema)


ID, NAME = known("id", "int"), known("name", "varchar", octets=40, charset="utf8mb4")
WIRE = [column("id", ColumnType.LONG), column("name", ColumnType.VARCHAR, b"\x28\0")]


def test_without_names_by_position_with_names_by_name() -> None:
    assert match(WIRE, ID, NAME, named=False) == [ID, NAME]
    assert match(WIRE[::-1], ID, NAME, named=True) == [NAME, ID]
    assert match([replace(WIRE[0], name="ID")], ID, named=True) == [ID]
    assert match([replace(WIRE[0], name="old_name")], ID, named=True) == [None]
    assert catalog_columns(table_map(*WIRE), None) == [None, None]


@pytest.mark.parametrize("columns", [(ID,), (ID, NAME, known("z", "int"))], ids=["one less", "one more"])
def test_another_number_of_columns_is_an_error(columns: tuple[ColumnSchema, ...]) -> None:
    with pytest.raises(SchemaError, match=r"shop\.orders has 2 columns in the binlog and [13] in the catalog.*FULL"):
        match(WIRE, *columns, named=False)


DISAGREEMENTS = [
    (column("c", ColumnType.LONG), known("c", "bigint"), "type"),
    (column("c", ColumnType.LONG, unsigned=True), known("c", "int"), "sign"),
    (column("c", ColumnType.NEWDECIMAL, b"\x0a\2"), known("c", "decimal", precision=10, scale=3), "precision"),
    (column("c", ColumnType.DATETIME2, b"\3"), known("c", "datetime", fsp=6), "number of digits"),
    (column("c", ColumnType.BIT, b"\1\0"), known("c", "bit", precision=2), "length"),
    (column("c", ColumnType.VARCHAR, b"\x28\0"), known("c", "varchar", octets=80, charset="utf8mb4"), "length"),
    (column("c", ColumnType.STRING, b"\xfe\5"), known("c", "binary", octets=6), "length"),
    (column("c", ColumnType.STRING, b"\xfe\5"), known("c", "uuid"), "length"),
    (column("c", ColumnType.BLOB, b"\2"), known("c", "mediumtext", octets=2**24 - 1, charset="utf8mb4"), "length"),
    (column("c", ColumnType.STRING, b"\xf7\1"), known("c", "enum", labels=("x",) * 256), "length"),
    (column("c", ColumnType.STRING, b"\xf8\2"), known("c", "set", labels=("x",) * 8), "length"),
    (column("c", ColumnType.STRING, b"\xf8\4"), known("c", "set", labels=("x",) * 33), "length"),
    (
        column("c", ColumnType.BLOB, b"\2", collation=LATIN1),
        known("c", "text", octets=65535, charset="utf8mb4"),
        "character set",
    ),
    (
        column("c", ColumnType.BLOB, b"\2", collation=BINARY),
        known("c", "text", octets=65535, charset="utf8mb4"),
        "character set",
    ),
    (column("c", ColumnType.BLOB, b"\2", collation=UTF8MB4), known("c", "blob", octets=65535), "character set"),
]


@pytest.mark.parametrize(("wire", "schema", "what"), DISAGREEMENTS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_disagreement_is_an_error_by_position_and_sets_the_catalog_aside_by_name(
    wire: Any, schema: ColumnSchema, what: str
) -> None:
    with pytest.raises(
        SchemaError, match=rf"Column c of table shop\.orders .* but its {what} in the binlog is different"
    ):
        match([wire], schema, named=False)
    assert match([wire], schema, named=True) == [None]


AGREEMENTS = [
    (column("c", ColumnType.LONG, unsigned=True), known("c", "int", unsigned=True)),
    (column("c", ColumnType.YEAR, unsigned=True), known("c", "year")),
    (column("c", ColumnType.STRING, b"\xee\x90"), known("c", "char", octets=400, charset="utf8mb4")),
    (column("c", ColumnType.STRING, b"\xfe\x10", collation=BINARY), known("c", "uuid")),
    (column("c", ColumnType.STRING, b"\xf7\2"), known("c", "enum", labels=("x",) * 256, charset="latin1")),
    (column("c", ColumnType.STRING, b"\xf8\4"), known("c", "set", labels=("x",) * 32)),
    (column("c", ColumnType.STRING, b"\xf8\x08"), known("c", "set", labels=("x",) * 33)),
    (column("c", ColumnType.BLOB, b"\1"), known("c", "tinyblob", octets=255)),
    (column("c", ColumnType.BLOB, b"\4", collation=46), known("c", "longtext", octets=2**32 - 1, charset="utf8mb4")),
    (column("c", ColumnType.DATETIME), known("c", "datetime", fsp=3)),
    (column("c", ColumnType.DATETIME2, b"\3"), known("c", "datetime", fsp=3)),
    (column("c", ColumnType.GEOMETRY, b"\4", collation=BINARY), known("c", "point")),
    (column("c", ColumnType.BLOB, b"\1", collation=4999), known("c", "tinytext", octets=255, charset="latin1")),
    (column("c", ColumnType.VARCHAR_COMPRESSED, b"\xf5\1"), known("c", "varchar", octets=500, charset="latin1")),
    (column("c", ColumnType.BLOB_COMPRESSED, b"\2"), known("c", "blob", octets=65535)),
]


@pytest.mark.parametrize("named", [False, True], ids=["by position", "by name"])
@pytest.mark.parametrize(("wire", "schema"), AGREEMENTS)
def test_what_agrees(wire: Any, schema: ColumnSchema, named: bool) -> None:  # noqa: FBT001
    assert match([wire], schema, named=named) == [schema]


@pytest.mark.parametrize(
    ("extra", "versioned", "hash_keys", "names"),
    [
        (PERIOD, True, 0, ["row_start", "row_end"]),
        ((HASH,), False, 1, ["DB_ROW_HASH_1"]),
        ((HASH, HASH), False, 2, ["DB_ROW_HASH_1", "DB_ROW_HASH_2"]),
        ((*PERIOD, HASH), True, 3, ["row_start", "row_end", "DB_ROW_HASH_1"]),
        ((), True, 1, []),
    ],
)
def test_hidden_columns(extra: tuple[Any, ...], versioned: bool, hash_keys: int, names: list[str]) -> None:  # noqa: FBT001
    found = match([*WIRE, *extra], ID, NAME, named=False, versioned=versioned, hash_keys=hash_keys)
    assert [column.name for column in found if column][2:] == names


@pytest.mark.parametrize(
    ("extra", "versioned", "hash_keys"),
    [
        (PERIOD, False, 0),
        ((HASH,), False, 0),
        ((HASH, HASH), False, 1),
        ((*PERIOD, HASH), True, 0),
        ((HASH, *PERIOD), True, 1),
    ],
)
def test_other_columns_at_the_end_are_not_taken_for_hidden_ones(
    extra: tuple[Any, ...],
    versioned: bool,  # noqa: FBT001
    hash_keys: int,
) -> None:
    with pytest.raises(SchemaError, match="columns in the binlog and 2 in the catalog"):
        match([*WIRE, *extra], ID, NAME, named=False, versioned=versioned, hash_keys=hash_keys)
