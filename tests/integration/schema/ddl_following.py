"""A server whose DDL a `SchemaHistory` follows through the binlog file, and the comparison with information_schema.

`Follower.run` executes statements and feeds the history what the server wrote of them; `assert_equal` compares every
table; `rows` reads the row changes with the names that the DDL before them gave.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from replica.protocol.events.binlog_file import FIRST_POSITION, walk
from replica.protocol.events.decode import decode
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.rows.rows_event import RowsEvent
from replica.protocol.rows.table_map import TableMapEvent
from replica.rows.tables.file_tables import FileResolver
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.schema.catalog import SYSTEM_DATABASES, columns_query, keys_query, read_catalog
from replica.schema.definition.definition import table_of
from replica.schema.definition.session import ANY_SERVER, ServerRules
from tests.kit.oracle.images import plain_rows
from tests.kit.oracle.rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pymysql

    from replica.protocol.header import Event, FormatDescriptionEvent
    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.tables.layout import RowLayout
    from replica.schema.effects.history import SchemaHistory
    from replica.schema.table import ColumnSchema, TableSchema
    from tests.fixtures.mariadb import MariaDb
    from tests.kit.oracle.rows import RowChange

TEXT = ValuePolicy("text")


class Follower:
    """One session on a server, and what the server has written since it began, in its last binlog file."""

    def __init__(self, server: MariaDb, rules: ServerRules = ANY_SERVER) -> None:
        server.sql("FLUSH BINARY LOGS")
        self.server = server
        self.file = server.datadir / server.binlogs()[-1]
        self.position = FIRST_POSITION
        self.description: FormatDescriptionEvent | None = None
        self.resolver = FileResolver()
        self.rules = rules
        self.touched: list[tuple[str, str]] = []
        self.session: pymysql.Connection = server.connect()
        self._observer: pymysql.Connection = server.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()
        self._observer.close()

    @property
    def history(self) -> SchemaHistory:
        return self.resolver.history

    def run(self, *statements: str | bytes) -> list[str]:
        """Execute and follow; what the history did not understand."""
        with self.session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return self.follow()

    def follow(self) -> list[str]:
        queries = [event for event in self.events() if isinstance(event, QueryEvent)]
        applied = [self.resolver.apply(event, server=self.rules) for event in queries]
        self.touched = sorted({name for one in applied for name in one.tables})
        return [one.reason for one in applied if one.reason]

    def rows(self) -> Iterator[tuple[RowLayout, RowChange]]:
        """The row changes since the last call, read with what the DDL up to each of them says."""
        maps: dict[int, tuple[RowLayout, tuple[ColumnDef, ...]]] = {}
        for event in self.events():
            if isinstance(event, QueryEvent):
                self.resolver.apply(event)
            elif isinstance(event, TableMapEvent):
                target = self.resolver.resolve(event)
                assert target is not None
                maps[event.table_id] = compile_layout(event, target.schema, None, TEXT), event.columns
            elif isinstance(event, RowsEvent):
                layout, columns = maps[event.table_id]
                for change in read_rows(plain_rows(event, columns, layout), layout, TEXT):
                    yield layout, change

    def events(self) -> Iterator[Event]:
        """What was written since the last call."""
        data = self.file.read_bytes()
        for found in walk(data, self.position, self.description):
            self.description = found.description
            yield decode(found.event, found.description)
        self.position = len(data)

    def catalog(self, selection: Sequence[tuple[str, str]] = ()) -> dict[tuple[str, str], TableSchema]:
        with self._observer.cursor() as cursor:
            answers = []
            for query, arguments in (columns_query(selection), keys_query(selection)):
                cursor.execute(query, arguments)
                answers.append(cursor.fetchall())
        return read_catalog(*answers)

    def assert_equal(self) -> None:
        """Every table of the server is known as the server itself describes it, and no other is."""
        assert_equal(self.history, self.catalog())

    def assert_touched_equal(self) -> None:
        """The same for the tables of the last statements alone: the server describes few tables quickly."""
        if self.touched:
            catalog = self.catalog(self.touched)
            assert_each_equal(self.history, catalog)
            known = {name for name in self.touched if self.history.table(*name)}
            assert known == set(catalog)


def assert_equal(history: SchemaHistory, catalog: dict[tuple[str, str], TableSchema]) -> None:
    assert_each_equal(history, catalog)
    assert {name for name in history.tables() if name[0] not in SYSTEM_DATABASES} == set(catalog)


def assert_each_equal(history: SchemaHistory, catalog: dict[tuple[str, str], TableSchema]) -> None:
    for name, expected in catalog.items():
        found = history.table(*name)
        assert found is not None, f"{name}: {history.reason(*name)}"
        assert table_of(expected).schema(*name) == expected, "what the catalog tells is enough to go on from"
        assert compared(found, expected) == plain(expected), name


def plain(schema: TableSchema) -> TableSchema:
    """The catalog's word in the spelling of servers since 10.6, without what DDL alone does not tell."""
    return replace(schema, columns=tuple(map(_plain, schema.columns)), hash_keys=0, collation=None)


def _mb3(collation: str) -> str:
    return re.sub("^utf8_", "utf8mb3_", collation)


def _plain(column: ColumnSchema) -> ColumnSchema:
    collation = column.collation and _mb3(column.collation)
    return replace(column, charset="utf8mb3" if column.charset == "utf8" else column.charset, collation=collation)


def compared(found: TableSchema, expected: TableSchema) -> TableSchema:
    """The history's word; where it says nothing of a collation or a width, the catalog's."""
    assert found.hash_keys >= expected.hash_keys, f"{found.hash_keys} hidden columns, the server has more"
    expected_table, expected = expected, plain(expected)
    if len(found.columns) != len(expected.columns):
        return found
    columns = []
    for mine, theirs in zip(found.columns, expected.columns, strict=True):
        column = mine
        if mine.collation is None:
            column = replace(column, collation=theirs.collation)
        if mine.octets is None and mine.charset == "utf8mb3":
            column = replace(column, octets=theirs.octets)
        columns.append(column)
    charset = (expected_collation := _mb3(expected_table.collation or "")).split("_")[0]
    assert found.collation in (None, charset, expected_collation), "the default of new columns"
    return replace(found, columns=tuple(columns), hash_keys=0, collation=None)
