"""The history as a whole: names that move, tables that are not known, and statements that mean nothing."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from replica.schema.definition.session import StatementContext
from replica.schema.effects.history import Applied, SchemaHistory
from replica.schema.known_tables import NEVER_SEEN
from tests.unit.schema.ddl import history


def names(made: SchemaHistory, table: str, database: str = "d") -> list[str] | None:
    found = made.table(database, table)
    return None if found is None else [column.name for column in found.columns]


def test_tables_that_were_never_created_here() -> None:
    made = history("ALTER TABLE t ADD a INT", "RENAME TABLE t TO u")
    assert names(made, "t") is None
    assert made.reason("d", "t") == NEVER_SEEN
    assert made.reason("d", "u") == f"it comes from d.t: {NEVER_SEEN}"


def test_renames_happen_one_after_the_other() -> None:
    made = history("CREATE TABLE a (x INT)", "CREATE TABLE b (y INT)", "RENAME TABLE a TO c, b TO a, c TO b")
    assert (names(made, "a"), names(made, "b"), names(made, "c")) == (["y"], ["x"], None)
    made.apply("ALTER TABLE a RENAME TO e.f, ADD z INT", StatementContext(database="d"))
    assert (names(made, "f", "e"), names(made, "a")) == (["y", "z"], None)
    made.apply("ALTER TABLE b RENAME b", StatementContext(database="d"))
    assert names(made, "b") == ["x"]


def test_applied_says_whose_definition_changed() -> None:
    made = history("CREATE TABLE a (x INT)")
    assert made.apply("INSERT INTO a VALUES (1)", StatementContext(database="d")) == Applied()
    assert not made.apply("COMMIT", StatementContext(database="d"))
    assert made.apply("ALTER TABLE a ADD y INT", StatementContext(database="d")) == Applied((("d", "a"),))
    assert made.apply("RENAME TABLE a TO b", StatementContext(database="d")).tables == (("d", "a"), ("d", "b"))
    refused = made.apply("ALTER TABLE b ADD y WEIRD", StatementContext(database="d"))
    assert refused.tables == (("d", "b"),)
    assert refused.reason.startswith("d.b: its ALTER was not understood: ")
    assert made.apply("DROP TABLE b, c", StatementContext(database="d")).tables == (("d", "b"), ("d", "c"))


def test_databases_go_with_their_tables() -> None:
    made = history("CREATE TABLE a (x INT)", "CREATE TABLE e.a (y INT)", "DROP DATABASE d")
    assert (names(made, "a"), names(made, "a", "e")) == (None, ["y"])
    made.apply("CREATE OR REPLACE DATABASE e", StatementContext(database="d"))
    assert names(made, "a", "e") is None


def test_a_statement_that_does_not_tell_its_table_may_have_changed_any() -> None:
    made = history("CREATE TABLE a (x INT)", "CREATE TABLE b (x INT)", "CREATE TABLE 'x' (y INT)")
    assert made.tables() == []
    assert "may have defined any table" in made.reason("d", "a")
    assert names(history("CREATE TABLE a (x INT)", "CREATE USER 'x"), "a") == ["x"]


def test_create_if_not_exists_is_the_first_one() -> None:
    made = history(
        "CREATE TABLE a (x INT)", "CREATE TABLE IF NOT EXISTS a (y INT)", "CREATE TABLE IF NOT EXISTS b (z INT)"
    )
    assert (names(made, "a"), names(made, "b")) == (["x"], ["z"])
    made.apply("CREATE OR REPLACE TABLE a (y INT)", StatementContext(database="d"))
    assert names(made, "a") == ["y"]


def test_temporary_tables_of_a_session() -> None:
    made = history("CREATE TABLE a (x INT)")
    for statement in ("CREATE TEMPORARY TABLE a (t INT)", "ALTER TABLE a ADD u INT", "DROP TABLE a"):
        made.apply(statement, StatementContext(database="d", thread=1))
    assert names(made, "a") == ["x"]
    made.apply("CREATE TEMPORARY TABLE a (t INT)", StatementContext(database="d", thread=1))
    made.apply("ALTER TABLE a ADD y INT", StatementContext(database="d", thread=2))
    made.apply("CREATE TABLE b LIKE a", StatementContext(database="d", thread=1))
    assert (names(made, "a"), names(made, "b")) == (["x", "y"], None)
    made.apply("DROP TEMPORARY TABLE a", StatementContext(database="d", thread=1))
    made.apply("DROP TEMPORARY TABLE a", StatementContext(database="d", thread=1))
    assert names(made, "a") == ["x", "y"]


def test_names_in_lower_case() -> None:
    assert names(history("CREATE TABLE A (x INT)"), "a") is None
    made = SchemaHistory(lower_case_table_names=True)
    made.apply("CREATE TABLE D.Orders (x INT)", StatementContext(database="d"))
    assert names(made, "ORDERS", "d") == ["x"]


def test_a_base_is_asked_for_what_no_statement_told() -> None:
    base = history("CREATE TABLE a (x INT)", "CREATE TABLE b (x INT)")
    made = SchemaHistory(base)
    assert names(made, "a") == ["x"]
    made.apply("ALTER TABLE a ADD y INT", StatementContext(database="d"))
    assert (names(made, "a"), names(base, "a")) == (["x", "y"], ["x"])
    # The base already has what this adds: it was written afterwards, and stays.
    assert made.apply("ALTER TABLE b ADD x INT", StatementContext(database="d")) == Applied(
        (), "d.b: Two columns have the same name."
    )
    assert names(made, "b") == ["x"]
    made.apply("CREATE TABLE IF NOT EXISTS b (z INT)", StatementContext(database="d"))
    assert names(made, "b") == ["z"]


def test_converting_to_a_default_that_versions_read_differently() -> None:
    made = history("CREATE DATABASE e CHARACTER SET ucs2", "CREATE TABLE e.a (x TEXT)")
    made.apply("ALTER TABLE e.a CONVERT TO CHARACTER SET DEFAULT", StatementContext(database="e"))
    assert names(made, "a", "e") == ["x"]
    made.apply("ALTER TABLE e.a CONVERT TO CHARACTER SET DEFAULT", StatementContext(database="d"))
    assert "from another database" in made.reason("e", "a")


def test_a_default_that_is_not_known_leaves_text_without_a_character_set() -> None:
    made = history("CREATE DATABASE e CHARACTER SET klingon", "CREATE TABLE e.a (x TEXT, y INT)")
    found = made.table("e", "a")
    assert found is not None
    assert found.columns[0].charset is None
    made.apply("ALTER TABLE e.a CONVERT TO CHARACTER SET latin1", StatementContext(database="d"))
    assert "from a character set that is not known" in made.reason("e", "a")


def test_it_travels_to_tasks() -> None:
    made = pickle.loads(pickle.dumps(history("CREATE TABLE a (x INT)")))  # noqa: S301
    assert names(made, "a") == ["x"]


WORDS = (
    "CREATE TABLE ALTER DROP t `a` ( ) , INT VARCHAR (5) ADD COLUMN 'x' DEFAULT PRIMARY KEY AFTER FIRST CHARSET "
    "latin1 = LIKE ENUM RENAME TO DATABASE CONVERT PARTITION BY /*! */ -- UNIQUE CHECK . SELECT PERIOD FOR WITH ü"
)
words = st.sampled_from([*WORDS.split(), "\n", "9" * 30])


@given(st.lists(st.lists(words, max_size=12).map(" ".join), max_size=6))
def test_any_words_leave_a_history_that_answers(statements: list[str]) -> None:
    made = history(
        *statements,
        *(f"CREATE TABLE t (a INT, {text}" for text in statements),
        *(f"ALTER TABLE t {s}" for s in statements),
    )
    for name in made.tables():
        assert made.table(*name) is not None
    assert (made.table("d", "t") is None) == bool(made.reason("d", "t"))
