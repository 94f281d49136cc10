"""Statements one after the other, from the catalog on: what the tables are behind each, and what is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.ddl import RelayStatement
from replica.schema.definition.session import ServerRules
from streaming_source.schema.changes import SchemaFollower, TableStep
from streaming_source.schema.table_state import TableState, with_changes
from tests.unit.schema.ddl import logged, table

if TYPE_CHECKING:
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema

T, U = ("d", "t"), ("d", "u")
CATALOG = {T: table("id INT, a INT, b INT")}
LATIN1 = 8


def statements(*sql: str) -> list[RelayStatement]:
    """Groups 0-1-1, 0-1-2, …"""
    return [
        RelayStatement(RelayLocation(1, 100 * n), Gtid(0, 1, n), logged(text, collation=LATIN1), ServerRules(101_100))
        for n, text in enumerate(sql, 1)
    ]


def follow(*sql: str, state: TableState | None = None, follower: SchemaFollower | None = None) -> list[TableStep]:
    follower = follower or SchemaFollower(CATALOG, lambda name: name[0] == "d")
    return follower.follow(state or TableState(), statements(*sql))


def names(state: TableState, name: TableName = T) -> list[str] | None:
    found = with_changes(CATALOG, state.only(lambda _: True)).get(name)
    return None if found is None else [column.name for column in found.columns]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (["ALTER TABLE t ADD c INT"], ["id", "a", "b", "c"]),
        (["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"], ["id", "b", "a"]),
        (["ALTER TABLE t CHANGE a x INT FIRST, DROP b"], ["x", "id"]),
        (["CREATE TABLE u LIKE t", "ALTER TABLE u DROP a", "RENAME TABLE t TO old, u TO t"], ["id", "b"]),
        (["RENAME TABLE t TO x", "ALTER TABLE x DROP b", "RENAME TABLE x TO t"], ["id", "a"]),
        (["DROP TABLE t"], None),
        (["DROP TABLE t", "CREATE TABLE t (z INT)"], ["z"]),
        (["RENAME TABLE t TO x"], None),
        (["CREATE TABLE IF NOT EXISTS t (z INT)"], ["id", "a", "b"]),
        (["CREATE OR REPLACE TABLE t (z INT)"], ["z"]),
        (["ALTER TABLE t DROP nothing"], None),
        (["CREATE TABLE t AS SELECT 1"], None),
        (["ALTER TABLE t ADD INDEX (a)", "INSERT INTO t VALUES (1)", "TRUNCATE t"], ["id", "a", "b"]),
    ],
)
def test_the_table_behind_them(sql: list[str], expected: list[str] | None) -> None:
    steps = follow(*sql)
    state = steps[-1].state if steps else TableState()
    assert names(state) == expected
    # In two looks, with the state between them.
    first = follow(*sql[:1])
    middle = first[-1].state if first else TableState()
    again = SchemaFollower(CATALOG, lambda _: True).follow(middle, statements(*sql)[1:])
    assert names(again[-1].state if again else middle) == expected


def test_a_new_table_has_the_character_set_of_its_database() -> None:
    (step,) = follow("CREATE TABLE u (a VARCHAR(3))", state=TableState(databases={"d": "utf16_bin"}))
    created = step.state.changes[U]
    assert created is not None
    assert (created.columns[0].charset, created.columns[0].octets) == ("utf16", 12)


def test_what_is_not_understood_is_read_again_with_its_position() -> None:
    asked: list[list[TableName]] = []

    def reread(wanted: list[TableName]) -> tuple[dict[TableName, TableSchema], GtidPosition]:
        asked.append(wanted)
        return {U: table("z INT")}, GtidPosition.parse("0-1-3")

    follower = SchemaFollower(CATALOG, lambda name: name[0] == "d", reread)
    steps = follow(
        *("CREATE TABLE u AS SELECT 1", "ALTER TABLE u ADD y INT", "CREATE TABLE e.x AS SELECT 1"),
        *("ALTER TABLE u ADD w INT", "DROP TABLE t"),
        follower=follower,
    )
    assert asked == [[U]]
    assert [names(step.state, U) for step in steps] == [["z"], ["z"], ["z"], ["z", "w"], ["z", "w"]]
    assert steps[1].late == {U}
    assert [step.reason != "" for step in steps] == [False, False, True, False, False]


def test_what_the_catalog_knew_already_is_not_done_twice() -> None:
    state = TableState(as_of=GtidPosition.parse("0-1-3"))
    steps = follow(
        *("ALTER TABLE t RENAME COLUMN x TO a", "ALTER TABLE t ADD INDEX (a)", "RENAME TABLE t TO old, u TO t"),
        "ALTER TABLE t DROP a",
        state=state,
    )
    assert [names(step.state) for step in steps] == [["id", "a", "b"]] * 3 + [["id", "b"]]
    assert [step.late for step in steps] == [{T}, set(), {T}, set()]
    (step,) = follow("ALTER TABLE t ADD COLUMN b INT", state=state)  # it has it
    assert (names(step.state), step.late, step.reason) == (["id", "a", "b"], {T}, "")


def test_a_head_that_is_not_understood_may_concern_any_table() -> None:
    (step,) = follow("ALTER TABLE 'no name' ADD b INT")
    assert names(step.state) is None
    assert "may have defined any table" in step.reason
