"""Who says what a table's columns are called: row metadata, the DDL of the file, a schema file, nobody."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.protocol.constants import ColumnType
from replica.protocol.events.statement_events import QueryEvent, StatusVars
from replica.protocol.header import EventHeader
from replica.rows.tables.file_tables import FileResolver
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.schema.definition.session import StatementContext
from replica.schema.effects.history import SchemaHistory
from tests.kit.binlog.parsed import column, table_map

T = ColumnType
LATIN1 = 8


def query(sql: str, **status: object) -> QueryEvent:
    header = EventHeader(0, 2, 1, 100, 1000, 0)
    state = StatusVars(charset=(45, 45, LATIN1), **status)  # type: ignore[arg-type]
    return QueryEvent(header, 1, 0, 0, "shop", sql.encode(), state)


def known(*statements: str) -> SchemaHistory:
    made = SchemaHistory()
    for statement in ("CREATE DATABASE shop CHARACTER SET utf8mb4", *statements):
        made.apply(statement, StatementContext(database="shop"))
    return made


def names(resolver: FileResolver, *codes: int, metadata: bytes = b"") -> list[str]:
    event = table_map(*(column(None, code, metadata) for code in codes))
    target = resolver.resolve(event)
    assert target is not None
    return [plan.name for plan in compile_layout(event, target.schema, None, ValuePolicy()).columns]


def test_patterns_say_what_is_wanted() -> None:
    resolver = FileResolver(["shop.*", "`x.y`.z"])
    assert [
        resolver.wants(*name) for name in (("shop", "a"), ("x.y", "z"), ("x", "y.z"), ("shop2", "a"), ("x", "yyz"))
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert FileResolver().wants("any", "thing")
    assert resolver.resolve(table_map(column("a", T.LONG), database="other")) is None


def test_nobody_knows() -> None:
    resolver = FileResolver()
    assert names(resolver, T.LONG, T.DATE) == ["@1", "@2"]
    assert resolver.unnamed == {("shop", "orders")}
    assert "CREATE TABLE is not among" in resolver.notes["shop", "orders"]
    with pytest.raises(SchemaError, match="have no known names: its CREATE TABLE is not among"):
        names(FileResolver(unnamed=None), T.LONG)


def test_ddl_in_the_file_names_what_comes_after_it() -> None:
    resolver = FileResolver()
    assert names(resolver, T.LONG) == ["@1"]
    assert resolver.unnamed
    assert resolver.apply(query("CREATE TABLE orders (id INT)"))
    assert names(resolver, T.LONG) == ["id"]
    assert not resolver.unnamed
    assert not resolver.notes
    assert resolver.apply(query("ALTER TABLE orders RENAME COLUMN id TO number"))
    assert names(resolver, T.LONG) == ["number"]
    assert not resolver.apply(query("INSERT INTO orders VALUES (1)"))
    assert not resolver.apply(query("ALTER TABLE orders ADD x INT", gtid_flags_extra=2))
    assert not resolver.apply(query("ALTER TABLE orders ADD x INT", gtid_flags_extra=8))
    assert names(resolver, T.LONG) == ["number"]
    assert resolver.apply(query("ALTER TABLE orders ADD x INT", gtid_flags_extra=4))
    assert names(resolver, T.LONG, T.LONG) == ["number", "x"]


def test_a_definition_that_does_not_fit_the_rows_is_not_used() -> None:
    resolver = FileResolver()
    resolver.apply(query("CREATE TABLE orders (id INT)"))
    assert names(resolver, T.LONGLONG) == ["@1"]
    assert "its type" in resolver.notes["shop", "orders"]
    assert names(resolver, T.LONG, T.LONG) == ["@1", "@2"]
    assert "has 2 columns in the binlog and 1" in resolver.notes["shop", "orders"]


def test_ddl_in_the_file_wins_over_the_schema_file() -> None:
    resolver = FileResolver(schema_file=known("CREATE TABLE orders (old INT)"))
    assert names(resolver, T.LONG) == ["old"]
    resolver.apply(query("CREATE OR REPLACE TABLE orders (new INT)"))
    assert names(resolver, T.LONG) == ["new"]
    # What does not fit is passed over, and the schema file may fit.
    resolver.apply(query("CREATE OR REPLACE TABLE orders (new BIGINT)"))
    assert names(resolver, T.LONG) == ["old"]
    resolver.apply(query("ALTER TABLE orders ADD x WEIRD"))
    assert names(resolver, T.LONG) == ["old"]
    assert not resolver.unnamed


def test_a_schema_file_from_before_and_from_after() -> None:
    before = FileResolver(schema_file=known("CREATE TABLE orders (a INT)"))
    after = FileResolver(schema_file=known("CREATE TABLE orders (a INT, b DATE)"))
    assert names(before, T.LONG) == ["a"]
    assert names(after, T.LONG) == ["@1"]
    for resolver in (before, after):
        resolver.apply(query("ALTER TABLE orders ADD b DATE"))
        assert names(resolver, T.LONG, T.DATE) == ["a", "b"]


def test_a_row_that_names_itself_needs_no_ddl() -> None:
    event = table_map(column("mine", T.LONG, unsigned=False))
    resolver = FileResolver(unnamed=None)
    target = resolver.resolve(event)
    assert target is not None
    assert target.schema is None
    assert not resolver.notes
    # DDL adds what metadata does not tell: UUID is BINARY(16) on the wire.
    resolver.apply(query("CREATE TABLE orders (u UUID)"))
    uuid = table_map(column("u", T.STRING, b"\xfe\x10", collation=63))
    found = resolver.resolve(uuid)
    assert found is not None
    assert found.schema is not None
    assert found.schema.columns[0].data_type == "uuid"


def test_an_assumed_character_set_is_said() -> None:
    resolver = FileResolver()
    resolver.apply(query("CREATE TABLE orders (t VARCHAR(9))"))
    assert names(resolver, T.VARCHAR, metadata=b"\x09\0") == ["t"]
    assert "character set of the server, latin1" in resolver.notes["shop", "orders"]
    # 36 bytes are 9 characters of utf8mb4: the assumption was wrong, and is seen to be.
    assert names(resolver, T.VARCHAR, metadata=b"\x24\0") == ["@1"]


def test_mysql_keeps_json_as_json() -> None:
    resolver = FileResolver(schema_file=known("CREATE TABLE orders (doc JSON)"))
    assert names(resolver, T.JSON, metadata=b"\4") == ["doc"]
    assert names(resolver, T.BLOB, metadata=b"\4") == ["doc"]
