"""The proof of `alter_proof.py`: an ALTER that a mirror follows in place does to rows what the server did.

Random tables with rows at the ends of their types, random ALTERs under random modes. Where the answer is to follow, the
rows of before with what is to be done to them are the rows that the server has after.
"""

from __future__ import annotations

import datetime as dt
import os
import struct
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import pymysql
import pytest
from pymysql.converters import encoders

from replica.handshake.primary.catalog import read_tables
from replica.protocol.charset import charset_key
from replica.rows.types.types import ValuePolicy
from replica.rows.types.values.numbers import decimals_of
from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.statements.added_values import NULL, KnownValue, defaults_after, read_defaults
from streaming_source.mirroring.statements.alterations import Evolved, NotInRows, target_effect
from streaming_source.transforms.transformed_images import target_columns
from tests.fixtures.mariadb import MariaDb
from tests.integration.schema.alter_cases import MODES, Cases, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.handshake.registration import Steps
    from replica.schema.table import TableSchema
    from streaming_source.mirroring.statements.added_values import Defaults

pytestmark = pytest.mark.server

_Result = TypeVar("_Result")
NAME = ("altered", "t")
POLICY = ValuePolicy()
QUICK = 100
STATEMENTS = 3
"""On each table, one after the other."""
SHOWN = 12
"""Cases in a message."""
MANY = int(os.environ.get("ALTERS", "3000"))
_FACTS = ("data_type", "unsigned", "charset", "labels", "precision", "scale", "fsp", "nullable", "period", "computed")
_YEAR = "IF({0} = 1900, 0, {0})"
_FLOATS = {"FLOAT": "f", "DOUBLE": "d"}
_BITS = {"ANSI_QUOTES": 4, "NO_BACKSLASH_ESCAPES": 1 << 20, "ORACLE": 1 << 9 | 4, "REAL_AS_FLOAT": 1}
"""Modes that give words another meaning, as a QUERY event has them."""


@pytest.fixture(scope="module")
def server(server_version: str) -> Iterator[MariaDb]:
    """A server whose own time zone has an hour twice in autumn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        with MariaDb(server_version) as running:
            yield running


class Shown:
    """One session that shows definitions and rows as a mirror would store them."""

    def __init__(self, server: MariaDb) -> None:
        self.connection = server.connect(conv=dict(encoders))  # every value as the server writes it
        self.cursor = self.connection.cursor()
        self.run("SET NAMES utf8mb4")
        self.run("CREATE OR REPLACE DATABASE altered CHARACTER SET utf8mb4")
        self.run("USE altered")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        self.cursor.execute(sql)
        return list(self.cursor.fetchall())

    def steps(self, steps: Steps[_Result]) -> _Result:
        answer: Any = None
        while True:
            try:
                query: Any = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self.cursor.execute(query.sql, query.arguments or None)
            rows = self.cursor.fetchall()
            answer = [tuple(None if value is None else str(value) for value in row) for row in rows]

    def context(self, mode: str) -> StatementContext:
        """What the binlog has of this session, under a sql_mode."""
        ((explicit,),) = self.run("SELECT @@explicit_defaults_for_timestamp")
        bits = sum(bit for word, bit in _BITS.items() if word in mode)
        return StatementContext(database="altered", sql_mode=bits, explicit_timestamps=str(explicit) == "1")

    def definition(self) -> tuple[TableSchema, Defaults]:
        self.run("SET sql_mode = ''")
        return self.steps(read_tables([NAME]))[NAME], self.steps(read_defaults(["altered"])).get(NAME, {})

    def rows(self, table: TableSchema) -> Counter[tuple[Any, ...]]:
        """The rows, as often as they are there."""
        self.run("SET sql_mode = '', time_zone = '+00:00'")
        columns = target_columns(table, POLICY)
        rounded = {column.name for column in table.columns if decimals_of(column.column_type) is not None}
        years = {column.name for column in table.columns if column.column_type.startswith("year(2)")}
        shown = ", ".join(
            f"`{column.name}`"
            if column.name in rounded
            else _YEAR.format(f"YEAR(CAST(`{column.name}` AS DATE))")
            if column.name in years
            else _shown(column.name, column.type)
            for column in columns
        )
        found = self.run(f"SELECT {shown} FROM t")
        return Counter(
            tuple(_value(value, column.type) for value, column in zip(row, columns, strict=True)) for row in found
        )


def _shown(name: str, kind: str) -> str:
    if kind in ("FLOAT", "DOUBLE"):
        return f"`{name}` + 0e0"
    if kind in ("BINARY", "GEOMETRY") or kind.startswith("STRUCT"):
        return f"HEX(`{name}`)"
    if kind in ("BOOLEAN", "BIGINT", "INT", "SMALLINT", "TINYINT"):
        return f"`{name}` + 0"
    return f"CAST(`{name}` AS CHAR)" if kind.startswith(("TIMESTAMP", "DATE")) else f"`{name}`"


def _value(value: Any, kind: str) -> Any:
    """A value as the target has it."""
    if value is None:
        return None
    if kind.startswith("DECIMAL") or kind in ("BIGINT", "INT", "SMALLINT", "TINYINT", "BOOLEAN"):
        return Decimal(int.from_bytes(value, "big") if isinstance(value, bytes) else str(value))
    if kind in _FLOATS:
        return struct.unpack(_FLOATS[kind], struct.pack(_FLOATS[kind], float(value)))[0]
    if kind.startswith(("TIMESTAMP", "DATE")):
        day, _, time = str(value).partition(" ")
        time = time or "00:00:00" * kind.startswith("TIMESTAMP")
        try:
            dt.date.fromisoformat(day)
        except ValueError:
            return None
        return f"{day} {time.rstrip('0').rstrip('.') if '.' in time else time}"
    if isinstance(value, bytes) and kind == "STRING":  # of a binary ENUM
        value = value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, bytes) else str(value)


def _constant(value: KnownValue, kind: str) -> Any:
    """The value that a new column gets."""
    if isinstance(value.content, bytes):
        return value.content.hex().upper()
    return _value(value.content, kind)


class Tally(Counter[str]):
    """How the cases of a run ended."""


def check(shown: Shown, seed: int, tally: Tally) -> None:
    """Make the table of a seed, alter it some times, and compare after each."""
    cases = Cases(seed)
    table = cases.table()
    if not _made(shown, table):
        tally["not made"] += 1
        return
    before, defaults = shown.definition()
    told = list(table.create)
    for _ in range(STATEMENTS):
        mode, zone = cases.one(*MODES), cases.one("+00:00", "SYSTEM")
        sql = cases.statement(table)
        try:
            rows = shown.rows(before)  # none of a table whose space was discarded
            shown.run(f"SET sql_mode = '{mode}', time_zone = '{zone}'")
            shown.run(sql)
        except pymysql.Error:
            tally["error"] += 1
            continue
        told.append(f"{sql} -- {mode} {zone}")
        effect = StatementEffect(sql, shown.context(mode))
        asked = target_effect(effect, before, POLICY, defaults=defaults)
        after, known = shown.definition()
        if isinstance(asked, Evolved):
            tally["in place"] += 1
            assert _definition(asked.definition) == _definition(after), (seed, told)
            assert _followed(before, asked, rows) == shown.rows(after), (seed, told)
            before, defaults = asked.definition, defaults_after(effect, defaults)
        else:
            assert isinstance(asked, NotInRows), (seed, told)
            tally["read again"] += 1
            before, defaults = after, known
        table.columns = {column.name: column.column_type.upper() for column in after.columns}


def _definition(table: TableSchema) -> list[object]:
    """What the judgement of the next statement depends on."""
    shown = target_columns(table, POLICY)
    named = (replace(column, charset=charset_key(column.charset)) for column in table.columns if not column.hidden)
    columns = [tuple(getattr(column, name) for name in _FACTS) for column in named]
    return [*shown, *columns, table.primary_key, table.versioned]


def _made(shown: Shown, table: Table) -> bool:
    try:
        shown.run("SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone = '+00:00'")
        shown.run("SET system_versioning_alter_history = KEEP")
        shown.run("DROP TABLE IF EXISTS t")
        for statement in table.create:
            shown.run(statement)
    except pymysql.Error:
        return False
    for row in table.rows:
        try:
            shown.run(row)
        except pymysql.Error:
            continue
    return True


def _followed(before: TableSchema, asked: Evolved, rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """The rows of before with what the answer does to them."""
    was = target_columns(before, POLICY)
    places = {column.name: number for number, column in enumerate(was)}
    now = target_columns(asked.definition, POLICY)
    names = asked.names if asked.names is not None else {column.name: column.name for column in now}
    values = dict(asked.values)
    found: Counter[tuple[Any, ...]] = Counter()
    for row, number in rows.items():
        made = tuple(
            row[places[names[column.name]]]
            if column.name in names
            else _constant(values.get(column.name, NULL), column.type)
            for column in now
        )
        found[made] += number
    return found


def run(server: MariaDb, seeds: range) -> Tally:
    shown, tally = Shown(server), Tally()
    wrong = []
    for seed in seeds:
        try:
            check(shown, seed, tally)
        except AssertionError as error:
            wrong.append(str(error))
    print(server.version, seeds, dict(tally))
    assert not wrong, "\n\n".join([f"{len(wrong)} cases", *wrong[:SHOWN]])
    return tally


def test_rows_are_what_the_server_has_after_random_alters(server: MariaDb) -> None:
    tally = run(server, range(QUICK))
    assert tally["in place"] > QUICK // 10


@pytest.mark.slow
def test_rows_are_what_the_server_has_after_thousands_of_alters(server: MariaDb) -> None:
    first = int(os.environ.get("ALTERS_SEED", "1000000"))
    tally = run(server, range(first, first + MANY))
    assert tally["in place"] > MANY // 10
