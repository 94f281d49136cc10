"""Options, LIKE, SELECT and sequences behind CREATE."""

from __future__ import annotations

import pytest

from replica.schema.definition.definition import Encoding
from replica.schema.definition.session import StatementContext
from tests.unit.schema.ddl import history, refusal, table


@pytest.mark.parametrize(
    ("options", "charset", "collation"),
    [
        ("", "utf8mb4", None),
        ("CHARSET latin1", "latin1", None),
        ("DEFAULT CHARACTER SET = ucs2 COLLATE = ucs2_bin", "ucs2", "ucs2_bin"),
        ("ENGINE=InnoDB, COLLATE utf8_general_ci", "utf8mb3", "utf8mb3_general_ci"),
        ("COMMENT='charset latin1' CONNECTION='collate x'", "utf8mb4", None),
        ("ROW_FORMAT=DEFAULT CHARSET=gbk STATS_PERSISTENT=1 UNION=(a, b)", "gbk", None),
        ("CHARSET=DEFAULT", "utf8mb4", None),
        ("PARTITION BY HASH(c) PARTITIONS 3", "utf8mb4", None),
        (
            "/*!50100 PARTITION BY RANGE (c) (PARTITION p VALUES LESS THAN MAXVALUE COMMENT = 'charset latin1') */",
            "utf8mb4",
            None,
        ),
    ],
)
def test_columns_take_the_tables_character_set(options: str, charset: str, collation: str | None) -> None:
    found = table("c VARCHAR(5)", options).columns[0]
    assert (found.charset, found.collation) == (charset, collation)


def test_the_database_gives_the_default() -> None:
    made = history(
        "CREATE SCHEMA IF NOT EXISTS e DEFAULT CHARACTER SET latin1 COMMENT 'charset ucs2'",
        "CREATE TABLE e.a (c TEXT)",
        "ALTER DATABASE e COLLATE utf8mb4_bin",
        "CREATE TABLE e.b LIKE e.a",
        "ALTER TABLE e.b ADD d TEXT",
        "CREATE TABLE e.f (c TEXT)",
    )
    charsets = {name: [c.charset for c in found.columns] for name in "abf" if (found := made.table("e", name))}
    assert charsets == {"a": ["latin1"], "b": ["latin1", "latin1"], "f": ["utf8mb4"]}
    assert not made.assumption("e", "a")


def test_a_database_that_was_not_created_here_is_taken_to_have_the_servers_default() -> None:
    made = history()
    made.apply("CREATE TABLE f.a (c TEXT, d INT)", StatementContext(database="f", encoding=Encoding("latin1")))
    made.apply("CREATE TABLE f.b (d INT)", StatementContext(database="f", encoding=Encoding("latin1")))
    made.apply("CREATE TABLE f.c (c TEXT) CHARSET ucs2", StatementContext(database="f", encoding=Encoding("latin1")))
    found = made.table("f", "a")
    assert found is not None
    assert found.columns[0].charset == "latin1"
    assert "character set of the server, latin1" in made.assumption("f", "a")
    assert not made.assumption("f", "b")
    assert not made.assumption("f", "c")


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE u LIKE t", "CREATE TABLE u (LIKE d.t)", "CREATE OR REPLACE TABLE u LIKE t"]
)
def test_like(statement: str) -> None:
    made = history("CREATE TABLE t (a INT PRIMARY KEY, b TEXT) CHARSET latin1 WITH SYSTEM VERSIONING", statement)
    source, copy = made.table("d", "t"), made.table("d", "u")
    assert source is not None
    assert copy is not None
    assert (copy.columns, copy.primary_key, copy.versioned) == (source.columns, source.primary_key, True)
    assert "is created LIKE d.nowhere, which is unknown" in history("CREATE TABLE u LIKE nowhere").reason("d", "u")


@pytest.mark.parametrize(
    "select",
    ["SELECT 1", "AS SELECT 1", "(SELECT 1)", "IGNORE AS SELECT 1", "WITH x AS (SELECT 1) SELECT 2", "VALUES (1)"],
)
def test_columns_of_a_select_are_not_known(select: str) -> None:
    assert "come from a SELECT" in history(f"CREATE TABLE t {select}").reason("d", "t")
    assert "come from a SELECT" in refusal("a INT", select)


def test_sequences() -> None:
    made = history("CREATE SEQUENCE s START WITH 5", "CREATE SEQUENCE t AS SMALLINT UNSIGNED INCREMENT 2")
    plain, small = made.table("d", "s"), made.table("d", "t")
    assert plain is not None
    assert small is not None
    assert [c.name for c in plain.columns][:2] == ["next_not_cached_value", "minimum_value"]
    assert (len(plain.columns), plain.columns[0].column_type) == (8, "bigint(21)")
    assert small.columns[0].column_type == "smallint(7) unsigned"
    assert small.columns[5] == plain.columns[5]
    made.apply("ALTER SEQUENCE t RESTART 7", StatementContext(database="d"))
    assert made.table("d", "t") == small
    made.apply("ALTER SEQUENCE t AS BIGINT", StatementContext(database="d"))
    altered = made.table("d", "t")
    assert altered is not None
    assert altered.columns == plain.columns
    made.apply("ALTER SEQUENCE t AS TEXT", StatementContext(database="d"))
    assert "not understood" in made.reason("d", "t")
