"""The table map of a definition says to decoders what the definition says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.charset import BINARY, charset_of
from replica.protocol.rows.table_map import CHARACTER, parse_table_map
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.table import ROW_PERIOD, ColumnSchema
from replica.snapshot.rows.table_map import TABLE_ID, select_list, table_map_body
from tests.kit.snapshot.result_rows import CASES, ResultCase, table

POLICY = ValuePolicy(geometry="spark")
NUMBER = ColumnSchema(name="id", data_type="int", column_type="int(11)", nullable=False, key=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.column.name)
def test_decoders_plan_the_columns_that_the_definition_says(case: ResultCase) -> None:
    schema = table([NUMBER, case.column], (0,))
    event = parse_table_map(table_map_body(schema))
    assert (event.table_id, event.database, event.table) == (TABLE_ID, "d", "t")
    assert event.primary_key == (0,)
    assert [column.nullable for column in event.columns] == [False, True]
    assert event.columns[1].collation is None or event.columns[1].type in CHARACTER | {247, 248}

    with_catalog = compile_layout(event, schema, None, POLICY)
    assert list(with_catalog.outputs) == [output_column(column, POLICY) for column in schema.columns]
    told = compile_layout(event, None, None, POLICY).columns[1]
    known = with_catalog.columns[1]
    if case.column.data_type not in ("uuid", "inet4", "inet6"):
        assert replace(told, declared="") == replace(known, declared="")
    assert known.labels == (case.column.labels or ())


def test_a_table_of_many_columns_and_long_labels() -> None:
    labels = tuple(f"{'é' * 200}{number}" for number in range(300))
    column = ColumnSchema(name="e", data_type="enum", column_type="enum(…)", labels=labels, charset="latin1")
    columns = [replace(column, name=f"e{number}") for number in range(300)]
    event = parse_table_map(table_map_body(table(columns)))
    assert [found.name for found in event.columns] == [f"e{number}" for number in range(300)]
    assert {found.labels for found in event.columns} == {tuple(label.encode() for label in labels)}


def test_binary_labels_and_text_have_their_sets() -> None:
    labels = ColumnSchema(name="e", data_type="set", column_type="set('a')", labels=("a",), charset="binary")
    text = ColumnSchema(name="c", data_type="char", column_type="char(300)", octets=1020, charset="utf8", collation="x")
    event = parse_table_map(table_map_body(table([labels, text])))
    assert event.columns[0].collation == BINARY
    assert charset_of(event.columns[1].collation or 0).name == "utf8mb3"
    assert event.columns[1].length == 1020


def test_a_versioned_table_ends_with_its_period_and_its_key_with_the_end_of_it() -> None:
    schema = replace(table([NUMBER, *ROW_PERIOD], (0,)), versioned=True)
    event = parse_table_map(table_map_body(schema))
    assert event.primary_key == (0, 2)
    assert compile_layout(event, None, None, POLICY).versioned


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (ColumnSchema(name="c", data_type="text", column_type="text", octets=65535), SchemaError),
        (ColumnSchema(name="c", data_type="varchar", column_type="varchar(3)", charset="latin1"), SchemaError),
        (ColumnSchema(name="c", data_type="char", column_type="char", octets=1, charset="no"), UnsupportedColumnError),
        (ColumnSchema(name="c", data_type="xml", column_type="xml"), SchemaError),
        (ColumnSchema(name="c", data_type="json", column_type="json"), SchemaError),
    ],
)  # fmt: skip
def test_what_a_definition_does_not_tell_is_refused(column: ColumnSchema, error: type[SchemaError]) -> None:
    with pytest.raises(error):
        table_map_body(table([column]))


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
