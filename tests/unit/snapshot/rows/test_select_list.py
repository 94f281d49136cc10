"""How the columns of a table are asked for."""

from __future__ import annotations

from replica.schema.table import ROW_PERIOD, ColumnSchema
from replica.snapshot.rows.select_list import select_list
from tests.kit.snapshot.result_rows import table


def column(name: str, data_type: str, **more: object) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=data_type, column_type=data_type, **more)  # type: ignore[arg-type]


def test_each_column_is_asked_for_by_its_name_and_some_by_a_cast() -> None:
    schema = table(
        [
            column("id", "int"),
            column("a`b {n}", "enum", labels=("x",)),
            column("s", "set", labels=("x",)),
            column("u", "uuid"),
            column("i4", "inet4"),
            column("{c}", "inet6"),
            column("v", "vector", octets=12),
            ColumnSchema(name="y", data_type="year", column_type="year(2)"),
            ColumnSchema(name="z", data_type="year", column_type="year(4)"),
            *ROW_PERIOD,
        ]
    )
    assert select_list(schema).split(", ") == [
        "`id`",
        "CAST(`a``b {n}` AS UNSIGNED)",
        "CAST(`s` AS UNSIGNED)",
        "CAST(`u` AS BINARY(16))",
        "CAST(`i4` AS BINARY(4))",
        "CAST(`{c}` AS BINARY(16))",
        "`v`",
        "YEAR(CAST(`y` AS DATE)) - 1900",
        "`z`",
        "`row_start`",
        "`row_end`",
    ]
