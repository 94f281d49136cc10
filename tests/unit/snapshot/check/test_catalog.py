"""Which key a table is read by."""

from __future__ import annotations

from typing import Any

import pytest

from replica.schema.table import ColumnSchema
from replica.snapshot.check.catalog import choose_key
from replica.snapshot.check.facts import IndexPart, TableIndex, indexes_query, read_indexes
from replica.snapshot.rows.row_block import TableKey
from tests.kit.snapshot.result_rows import table


def column(name: str, data_type: str = "int", *, nullable: bool = False, **more: Any) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=data_type, column_type=data_type, nullable=nullable, **more)


SCHEMA = table(
    [
        column("a"),
        column("b", "varbinary", octets=10),
        column("c", "varchar", octets=10, charset="latin1"),
        column("d", "double"),
        column("e", nullable=True),
        column("u", "uuid"),
    ]
)


def index(name: str, *columns: str, kind: str = "BTREE", **more: Any) -> TableIndex:
    parts = tuple(IndexPart(column.rstrip("-%"), "%" in column, "-" in column) for column in columns)
    more = {"unique": True, "ignored": False} | more
    return TableIndex(name=name, kind=kind, parts=parts, **more)


@pytest.mark.parametrize(
    ("indexes", "expected"),
    [
        ([index("PRIMARY", "b", "a"), index("x", "a")], TableKey("PRIMARY", (1, 0), ordered=True)),
        ([index("PRIMARY", "A-", "b-")], TableKey("PRIMARY", (0, 1), ordered=True)),
        ([index("PRIMARY", "a", "b-")], TableKey("PRIMARY", (0, 1), ordered=False)),
        ([index("PRIMARY", "c"), index("x", "a")], TableKey("PRIMARY", (2,), ordered=False)),
        ([index("x", "c"), index("y", "a", "b")], TableKey("y", (0, 1), ordered=True)),
        ([index("y", "a", "b"), index("x", "b")], TableKey("x", (1,), ordered=True)),
        ([index("y", "b"), index("z", "a")], TableKey("z", (0,), ordered=True)),
        ([index("z", "a"), index("y", "a")], TableKey("y", (0,), ordered=True)),
        ([index("x", "u")], TableKey("x", (5,), ordered=True)),
        ([index("PRIMARY", "d"), index("x", "a", "d")], None),
        ([index("x", "a", "e")], None),
        ([index("x", "b%")], None),
        ([index("x", "a", unique=False)], None),
        ([index("x", "a", ignored=True)], None),
        ([index("x", "a", kind="HASH")], None),
        ([index("x", "unknown")], None),
        ([], None),
    ],
)
def test_the_key(indexes: list[TableIndex], expected: TableKey | None) -> None:
    assert choose_key(SCHEMA, indexes) == expected


def test_a_year_of_two_digits_sorts_as_nothing_else() -> None:
    schema = table([ColumnSchema(name="y", data_type="year", column_type="year(2)", nullable=False)])
    assert choose_key(schema, [index("PRIMARY", "y")]) == TableKey("PRIMARY", (0,), ordered=False)


def test_the_query_names_what_is_selected() -> None:
    sql, arguments = indexes_query([("d", "t"), ("e", None)])
    assert "(s.TABLE_SCHEMA = %s AND s.TABLE_NAME = %s) OR (s.TABLE_SCHEMA = %s)" in sql
    assert arguments == ("d", "t", "e")
    assert "WHERE FALSE" in indexes_query([])[0]


@pytest.mark.parametrize("ignored", [None, "NO", "YES"])
def test_rows_of_the_query_are_indexes(ignored: str | None) -> None:
    def row(name: str, number: int, column: str, order: str | None, prefix: str | None, unique: str) -> tuple[Any, ...]:
        found = ("def", "d", "t", unique, "d", name, str(number), column, order, "2", prefix, None, "", "BTREE", "", "")
        return found if ignored is None else (*found, ignored)

    rows = [row("PRIMARY", 1, "a", "A", None, "0"), row("x", 1, "b", "D", "3", "1"), row("x", 2, "a", "A", None, "1")]
    assert read_indexes(rows) == {
        ("d", "t"): (
            TableIndex(name="PRIMARY", unique=True, kind="BTREE", ignored=ignored == "YES",
                       parts=(IndexPart("a", prefix=False, descending=False),)),
            TableIndex(name="x", unique=False, kind="BTREE", ignored=ignored == "YES",
                       parts=(IndexPart("b", prefix=True, descending=True),
                              IndexPart("a", prefix=False, descending=False))),
        )
    }  # fmt: skip
