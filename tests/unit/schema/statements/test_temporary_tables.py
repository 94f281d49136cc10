"""Which names are temporary tables: per session, from statements that are marked to use one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from replica.protocol.constants import HeaderFlag
from replica.schema.definition.session import ServerRules
from replica.schema.statements.statements import TemporaryTables
from tests.unit.schema.ddl import logged

if TYPE_CHECKING:
    from replica.protocol.events.statement_events import QueryEvent


def marked(sql: str, *, thread: int = 7) -> QueryEvent:
    statement = logged(sql)
    header = statement.header._replace(flags=HeaderFlag.THREAD_SPECIFIC)
    return replace(statement, header=header, thread_id=thread)


def known(tables: TemporaryTables, *names: str, thread: int = 7) -> list[bool]:
    return [tables.means(marked("INSERT", thread=thread), ("d", name)) for name in names]


def followed(*statements: QueryEvent) -> TemporaryTables:
    tables = TemporaryTables()
    for statement in statements:
        tables.follow(statement)
    return tables


def test_a_temporary_table_is_its_sessions_alone() -> None:
    tables = followed(marked("CREATE TEMPORARY TABLE work (a INT)"))
    assert known(tables, "work", "WORK", "other") == [True, False, False]
    assert known(tables, "work", thread=8) == [False]
    assert not tables.means(logged("INSERT INTO work VALUES (1)"), ("d", "work")), "the statement is not marked"


def test_a_server_that_stores_names_in_lower_case_finds_it_by_any() -> None:
    tables = TemporaryTables()
    tables.follow(marked("CREATE TEMPORARY TABLE Wörk (a INT)"), ServerRules(lower_case=True))
    assert known(tables, "wörk") == [True]


def test_statements_that_are_not_marked_make_none() -> None:
    assert known(followed(logged("CREATE TEMPORARY TABLE t (a INT)")), "t") == [False]
    assert known(followed(marked("CREATE TABLE t (a INT)")), "t") == [False]
    assert known(followed(marked("INSERT INTO t VALUES (1)")), "t") == [False]


def test_a_dropped_one_is_no_more() -> None:
    tables = followed(marked("CREATE TEMPORARY TABLE a (x INT)"), marked("CREATE TEMPORARY TABLE b (x INT)"))
    tables.follow(marked("DROP TEMPORARY TABLE a"))
    assert known(tables, "a", "b") == [False, True]


def test_a_renamed_one_has_its_new_name_and_other_names_stay_what_they_are() -> None:
    tables = followed(marked("CREATE TEMPORARY TABLE a (x INT)"))
    tables.follow(marked("RENAME TABLE a TO b, c TO e"))
    assert known(tables, "a", "b", "c", "e") == [False, True, False, False]


def test_a_statement_that_cannot_be_read_changes_nothing() -> None:
    tables = followed(marked("CREATE TEMPORARY TABLE a (x INT)"), marked("CREATE TEMPORARY TABLE ("))
    assert known(tables, "a") == [True]


def test_a_copy_goes_its_own_way() -> None:
    tables = followed(marked("CREATE TEMPORARY TABLE a (x INT)"))
    other = tables.copy()
    other.follow(marked("DROP TABLE a"))
    assert (known(tables, "a"), known(other, "a")) == ([True], [False])
