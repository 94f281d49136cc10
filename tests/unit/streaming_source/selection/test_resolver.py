"""Patterns select tables by database and name; a selected table gets the catalog's word on it, if there is one."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from replica.errors import ConfigError, SchemaError
from replica.rows.tables.layout import TableTarget
from replica.schema.definition.session import ServerRules
from replica.schema.table import ColumnSchema, TableSchema
from streaming_source.options.source_options import SourceOptions
from streaming_source.selection.resolver import SelectedTables, Unreadable, announce_selection, selected_tables

ORDERS = TableSchema(database="shop", table="orders", columns=())
SELECTED = SelectedTables(("shop.*", "crm.cust*", "*.audit", "odd.a+b"), {("shop", "orders"): ORDERS})


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("shop.orders", True),
        ("shop.lines", True),
        ("Shop.orders", False),
        ("shops.orders", False),
        ("crm.customer", True),
        ("crm.accounts", False),
        ("anything.audit", True),
        ("anything.audits", False),
        ("odd.a+b", True),
        ("odd.aab", False),
    ],
)
def test_patterns(name: str, wanted: bool) -> None:  # noqa: FBT001
    database, table = name.split(".")
    selected = pickle.loads(pickle.dumps(SELECTED))  # noqa: S301
    target = selected.resolve(SimpleNamespace(database=database, table=table))
    assert (target is not None) is wanted
    if target is not None:
        assert target == TableTarget(ORDERS if name == "shop.orders" else None)


def test_rows_of_a_hidden_table_are_refused_unless_they_name_their_columns_or_it_became_known() -> None:
    unreadable = Unreadable("me@%", "GRANT SELECT ON {table} TO 'me'@'%';", ("shop.*",))
    tables = SelectedTables(("shop.*", "crm.*"), {("shop", "orders"): ORDERS}, unreadable=unreadable)

    def rows(name: str, *columns: str | None) -> SimpleNamespace:
        database, table = name.split(".")
        return SimpleNamespace(database=database, table=table, columns=[SimpleNamespace(name=c) for c in columns])

    with pytest.raises(
        SchemaError, match=r"shop\.lines .* me@% has no SELECT .*GRANT SELECT ON `shop`\.`lines` TO 'me'"
    ):
        tables.resolve(rows("shop.lines", None, None))
    assert tables.resolve(rows("shop.lines", "a", "b")) is not None
    assert tables.resolve(rows("shop.orders", None)) is not None
    assert tables.resolve(rows("crm.x", None)) is not None


def test_a_name_of_a_statement_is_as_the_server_stores_it_or_both_where_no_server_was_asked() -> None:
    files = SelectedTables(("shop.*",), {})
    assert files.spelled(("shop", "Orders")) == (("shop", "Orders"), ("shop", "orders"))
    assert files.spelled(("shop", "orders")) == (("shop", "orders"),)
    asked = SelectedTables(("shop.*",), {}, server=ServerRules(110_803))
    assert asked.spelled(("shop", "Orders")) == (("shop", "Orders"),)


def selected(**options: str) -> SelectedTables:
    parsed = SourceOptions.parse({"user": "repl", **options})
    return selected_tables(parsed, parsed.patterns, {})


def test_what_is_excluded_is_not_wanted_whatever_selects_it() -> None:
    tables = selected(tables="shop.*,crm.customer", excludeTables="*.tmp_*,shop.log")
    wanted = ("shop.orders", "shop.tmp_1", "shop.log", "crm.customer", "crm.log")
    assert [tables.selects(*name.split(".")) for name in wanted] == [True, False, False, True, False]
    assert [tables.selects_database(name) for name in ("shop", "crm", "hr")] == [True, True, False]
    with pytest.raises(ConfigError, match=r"excludeTables leaves out all of shop\.log"):
        selected(table="shop.log", excludeTables="*.log")


@pytest.mark.parametrize(
    ("given", "operations", "ddl"),
    [
        ({}, 7, False),
        ({"operations": "delete, INSERT"}, 5, False),
        ({"operations": "update,ddl"}, 2, True),
        ({"operations": "update", "includeDdl": "true"}, 2, True),
        ({"includeDdl": "true"}, 7, True),
        ({"operations": "ddl"}, 0, True),
    ],
)
def test_operations(given: dict[str, str], operations: int, ddl: bool) -> None:  # noqa: FBT001
    tables = selected(table="shop.orders", **given)
    target = tables.resolve(SimpleNamespace(database="shop", table="orders"))  # type: ignore[arg-type]
    assert (target.operations if target else 0) == operations
    assert tables.include_ddl is ddl


def test_contradictions_are_refused_by_name() -> None:
    for given, message in (
        ({"operations": "insert,upsert"}, "operations='insert,upsert' holds 'upsert', which is not one of insert"),
        ({"columns": "a,,b"}, "columns='a,,b' names an empty column"),
        ({"rowShape": "flat", "includeDdl": "true"}, "rowShape=flat has no place for DDL"),
        ({"rowShape": "flat", "operations": "ddl"}, "rowShape=flat has no place for DDL"),
        ({"excludeTables": "log"}, "excludeTables='log' is not of the form"),
    ):
        with pytest.raises(ConfigError, match=message):
            selected(table="shop.orders", **given)


def test_a_pattern_without_a_table_is_said_and_a_column_without_one_refused(caplog: pytest.LogCaptureFixture) -> None:
    options = SourceOptions.parse({"user": "repl", "tables": "shop.*,crm.*", "columns": "id,nmae"})
    column = ColumnSchema(name="id", data_type="int", column_type="int(11)")
    named = ColumnSchema(name="name", data_type="text", column_type="text", charset="utf8mb4")
    catalog = {
        ("shop", table): TableSchema(database="shop", table=table, columns=columns)
        for table, columns in (("orders", (column,)), ("lines", (column, named)))
    }
    with pytest.raises(SchemaError, match=r"names nmae, a column that no selected table has\..*Did you mean name\?"):
        announce_selection(options, catalog)
    assert [record.getMessage() for record in caplog.records] == [
        "no table matches crm.* now; its rows arrive once one is created"
    ]
