from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import SchemaError
from replica.schema.catalog import SYSTEM_DATABASES, columns_query, keys_query, parse_labels, read_catalog
from replica.schema.table import ROW_PERIOD, ColumnSchema, TableSchema


def row(name: str, column_type: str, **values: Any) -> tuple[Any, ...]:
    """A row of the columns query, as a server answers it."""
    defaults = {
        "nullable": "YES", "charset": None, "collation": None, "octets": None, "precision": None, "scale": None,
        "fsp": None, "comment": "", "generated": None, "table_type": "BASE TABLE", "table": "a",
        "table_collation": "latin1_swedish_ci",
    }  # fmt: skip
    told = defaults | values
    data_type = column_type.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]
    last = [
        told[k]
        for k in ("nullable", "charset", "collation", "octets", "precision", "scale", "fsp", "comment", "generated")
    ]
    return ("t", told["table"], name, data_type, column_type, *last, told["table_type"], told["table_collation"])


# Rows of a 10.5 and an 11.8 server, and what they stand for.
ROWS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (row("id", "int(10) unsigned zerofill", nullable="NO", precision=10, scale=0), {"unsigned": True}),
    (row("d", "decimal(65,30)", precision=65, scale=30), {"precision": 65, "scale": 30}),
    (row("b", "bit(10)", precision=10), {"precision": 10}),
    (row("y", "year(4)"), {}),
    (row("ts", "timestamp(6)", fsp=6), {"fsp": 6}),
    (row("dt", "datetime", fsp=0), {"fsp": 0}),
    (row("f", "float unsigned", precision=12), {"unsigned": True}),
    (
        row("c", "char(5)", charset="latin1", collation="latin1_swedish_ci", octets=5),
        {"charset": "latin1", "collation": "latin1_swedish_ci", "octets": 5},
    ),
    (row("bi", "binary(5)", octets=5), {"octets": 5}),
    (row("lt", "longtext", charset="utf8mb4", octets=4294967295), {"charset": "utf8mb4", "octets": 4294967295}),
    (row("e", "enum('a',' unsigned')", charset="utf8", octets=9), {"charset": "utf8", "labels": ("a", " unsigned")}),
    (row("u", "uuid"), {}),
    (row("v", "vector(3)", octets=12), {"octets": 12}),
    (
        row("z", "varchar(500) /*M!100301 COMPRESSED*/", charset="latin1", octets=500),
        {"charset": "latin1", "octets": 500},
    ),
]


@pytest.mark.parametrize(("answer", "expected"), ROWS, ids=lambda v: v[4] if isinstance(v, tuple) else "")
def test_columns(answer: tuple[Any, ...], expected: dict[str, Any]) -> None:
    tables = read_catalog([answer], [])

    (column,) = tables["t", "a"].columns
    base = {"name": answer[2], "data_type": answer[3], "column_type": answer[4], "nullable": answer[5] == "YES"}
    assert column == ColumnSchema(**base | expected)


def test_keys_versioning_and_hidden_hashes() -> None:
    columns = [
        row("a", "int(11)", table_type="SYSTEM VERSIONED"),
        row("b", "int(11)", comment="it's", table_type="SYSTEM VERSIONED"),
        row("c", "blob", table="plain"),
    ]
    keys = [
        ("t", "a", "PRIMARY", "b"),
        ("t", "a", "PRIMARY", "a"),
        ("t", "a", "long_one", "a"),
        ("t", "a", "long_one", "b"),
    ]

    tables = read_catalog(columns, keys)

    assert list(tables) == [("t", "a"), ("t", "plain")]
    table, plain = tables.values()
    assert (table.primary_key, table.versioned, table.hash_keys) == ((1, 0), True, 1)
    assert [column.key for column in table.columns] == [True, True, False, False]
    assert table.columns[2:] == ROW_PERIOD
    assert table.columns[1].comment == "it's"
    assert (plain.primary_key, plain.versioned, plain.hash_keys, plain.columns[0].key) == ((), False, 0, False)
    assert table.name == "t.a"
    assert pickle.loads(pickle.dumps(tables)) == tables  # noqa: S301


def test_a_period_with_names_of_its_own() -> None:
    columns = [
        row("a", "int(11)", table_type="SYSTEM VERSIONED"),
        row("since", "timestamp(6)", fsp=6, generated="ROW START", table_type="SYSTEM VERSIONED"),
        row("until", "timestamp(6)", fsp=6, generated="ROW END", table_type="SYSTEM VERSIONED"),
    ]

    (table,) = read_catalog(columns, []).values()

    assert [(column.name, column.period, column.hidden) for column in table.columns] == [
        ("a", None, False),
        ("since", "start", False),
        ("until", "end", False),
    ]


@pytest.mark.parametrize("query", [columns_query, keys_query])
def test_the_selection_goes_into_arguments_never_into_the_text(query: Any) -> None:
    text, arguments = query([("shop", "o'rders"), ("crm", None)])

    assert "shop" not in text
    times = 2 if query is columns_query else 1  # it asks two tables of the catalog
    assert arguments == ("shop", "o'rders", "crm") * times
    assert text.count("%s") == 3 * times
    assert text % tuple(map(repr, arguments))


@pytest.mark.parametrize("query", [columns_query, keys_query])
def test_without_a_selection_the_servers_own_databases_are_left_out(query: Any) -> None:
    text, arguments = query()
    assert arguments in (SYSTEM_DATABASES, SYSTEM_DATABASES * 2)
    assert "NOT IN (%s, %s, %s, %s)" in text


@pytest.mark.parametrize(
    ("column_type", "labels"),
    [
        ("enum('a')", ("a",)),
        ("set('x','y z')", ("x", "y z")),
        (r"""enum('a','b''c','d,e','\\x','','"q"','ü')""", ("a", "b'c", "d,e", "\\x", "", '"q"', "ü")),
        ("enum(''',''')", ("','",)),
        ("enum(')','(')", (")", "(")),
        (r"enum('a\nb','\0','\\')", ("a\nb", "\0", "\\")),
    ],
)
def test_labels(column_type: str, labels: tuple[str, ...]) -> None:
    assert parse_labels(column_type) == labels


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_labels_round_trip(labels: list[str]) -> None:
    escapes = {"\\": "\\\\", "'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"}
    quoted = ("".join(escapes.get(c, c) for c in label) for label in labels)
    assert parse_labels("set('" + "','".join(quoted) + "')") == tuple(labels)


@pytest.mark.parametrize("column_type", ["enum('a)", "enum(a)", "enum('a''b)"])
def test_labels_that_no_server_writes(column_type: str) -> None:
    with pytest.raises(SchemaError, match="labels of enum"):
        parse_labels(column_type)


def test_a_table_is_named_with_its_database() -> None:
    assert TableSchema(database="a.b", table="c", columns=()).name == "`a.b`.c"
