"""Tables from statements, for tests: `table("a INT")` is what CREATE TABLE d.t (a INT) makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.protocol.events.statement_events import QueryEvent, StatusVars
from replica.protocol.header import EventHeader
from replica.schema.definition.session import StatementContext
from replica.schema.effects.history import SchemaHistory

if TYPE_CHECKING:
    from replica.schema.table import ColumnSchema, TableSchema


def history(*statements: str, **session: object) -> SchemaHistory:
    made = SchemaHistory()
    for statement in ("CREATE DATABASE d CHARACTER SET utf8mb4", *statements):
        made.apply(statement, StatementContext(database="d", **session))  # type: ignore[arg-type]
    return made


def table(items: str, options: str = "", *alters: str, **session: object) -> TableSchema:
    made = history(f"CREATE TABLE t ({items}) {options}", *(f"ALTER TABLE t {a}" for a in alters), **session)
    found = made.table("d", "t")
    assert found is not None, made.reason("d", "t")
    return found


def column(declaration: str, **session: object) -> ColumnSchema:
    return table(f"c {declaration}", **session).columns[0]


def refusal(items: str, options: str = "", *alters: str, **session: object) -> str:
    made = history(f"CREATE TABLE t ({items}) {options}", *(f"ALTER TABLE t {a}" for a in alters), **session)
    assert made.table("d", "t") is None
    return made.reason("d", "t")


def logged(sql: str, *, database: str = "d", extra: int | None = None, collation: int = 45) -> QueryEvent:
    """A statement as a binlog has it; `extra`: the flags of an ALTER in two phases."""
    status = StatusVars(charset=(collation, collation, collation), gtid_flags_extra=extra)
    return QueryEvent(EventHeader(0, 2, 1, 100, 1000, 0), 7, 0, 0, database, sql.encode(), status)
