"""Statements under every sql_mode and character set of a session, against real servers.

The definitions that are derived are the catalog's, the values of added columns are those of SELECT, and each form of a
statement is read as what the server did.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pymysql
import pytest

from replica.protocol.events.statement_events import QueryEvent
from replica.rows.types.types import ValuePolicy
from replica.schema.definition.session import ServerRules
from replica.schema.effects.effect import effect_of
from replica.schema.statements.statements import Verb
from streaming_source.mirroring.statements.added_values import NULL
from streaming_source.mirroring.statements.alterations import Evolved, target_effect
from tests.fixtures.mariadb import MariaDb
from tests.integration.schema.ddl_following import Follower

if TYPE_CHECKING:
    from replica.schema.effects.effect import StatementEffect
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.statements.alterations import TargetEffect

pytestmark = pytest.mark.server

LOWER: Final = ServerRules(lower_case=True)
MODES: Final = (
    *("", "ORACLE", "MAXDB", "ANSI", "REAL_AS_FLOAT", "NO_BACKSLASH_ESCAPES", "EMPTY_STRING_IS_NULL"),
    *("TIME_ROUND_FRACTIONAL", "PIPES_AS_CONCAT", "TRADITIONAL", "ORACLE,EMPTY_STRING_IS_NULL"),
    "NO_BACKSLASH_ESCAPES,ANSI_QUOTES",
)
OTHER_MODES: Final = (
    *("MSSQL", "DB2", "POSTGRESQL", "IGNORE_SPACE", "HIGH_NOT_PRECEDENCE", "NO_ZERO_DATE", "PAD_CHAR_TO_FULL_LENGTH"),
    *("MYSQL323", "MYSQL40", "NO_FIELD_OPTIONS", "NO_UNSIGNED_SUBTRACTION", "STRICT_ALL_TABLES", "ORACLE,MAXDB"),
)
SESSIONS: Final = (
    "SET collation_connection = latin1_swedish_ci",
    "SET collation_connection = ascii_general_ci",
    "SET collation_connection = ucs2_general_ci",
    "SET NAMES binary",
    "SET time_zone = '+05:00'",
    "SET explicit_defaults_for_timestamp = 0",
)
TYPES: Final = (
    *("DATE", "DATE NOT NULL", "VARCHAR2(10)", "NUMBER", "NUMBER(10,2)", "RAW(10)", "CLOB", "BLOB", "BLOB(10)"),
    *("LONG", "TEXT(10)", "REAL", "REAL(5,2)", "FLOAT(30)", "TIMESTAMP", "TIMESTAMP(3)", "DATETIME(3)", "NCHAR(3)"),
    *("JSON", "SERIAL", "DEC(5)", "VARCHAR(10) BINARY", "mariadb_schema.DATE", "oracle_schema.DATE"),
    *("maxdb_schema.TIMESTAMP", "mariadb_schema.TIMESTAMP(2)", "oracle_schema.BLOB", "`oracle_schema`.DATE"),
    *(
        "SET('a\\\\b','c')",
        "VARCHAR(9) COMMENT 'a\\\\b'",
        'VARCHAR(9) COMMENT "x"',
        "ENUM('é','漢') CHARACTER SET utf8mb4",
    ),
)
DEFAULTS: Final = (
    *("DATE DEFAULT '2020-01-02'", "VARCHAR(9) DEFAULT 'a\\'", "VARCHAR(9) DEFAULT 'a\\\\b'", 'VARCHAR(9) DEFAULT "x"'),
    *("VARCHAR(9) DEFAULT ''", "VARCHAR(9) DEFAULT 'é漢'", "VARCHAR(9) DEFAULT 'é'", "TIME DEFAULT '10:00:00.9'"),
    *("DATETIME(1) DEFAULT '2020-01-02 10:00:00.96'", "TIMESTAMP NULL DEFAULT '2020-01-02'", "INT DEFAULT (1||2)"),
    *("REAL DEFAULT 1.1", "BINARY(3) DEFAULT 'a'", "VARCHAR2(5) DEFAULT 'x'", "NUMBER(5,1) DEFAULT 1.5"),
    *("CLOB DEFAULT 'x'", "RAW(4) DEFAULT 'ab'", "VARCHAR(9) DEFAULT 'it''s'", "VARCHAR(9) DEFAULT N'a'"),
    *("INT DEFAULT (NOT 1 BETWEEN -5 AND 5)", "CHAR(5) DEFAULT 'a'", "VARCHAR(9) NOT NULL", "INT NOT NULL"),
)


@pytest.mark.parametrize(
    "modes", [MODES, pytest.param(OTHER_MODES, marks=pytest.mark.slow)], ids=["that matter", "others"]
)
def test_definitions_are_the_catalogs(server: MariaDb, modes: tuple[str, ...]) -> None:
    taken = 0
    with MariaDb(server.version) as fresh, Follower(fresh) as follower:
        follower.run("CREATE DATABASE d CHARACTER SET utf8mb4", "USE d")
        for mode in modes:
            follower.run(f"SET sql_mode = '{mode}'", "CREATE OR REPLACE TABLE b (k INT)")
            for number, declared in enumerate(TYPES):
                for statement in (
                    f"CREATE OR REPLACE TABLE t (c {declared})",
                    f"ALTER TABLE b ADD c{number} {declared}",
                ):
                    try:
                        puzzled = follower.run(statement)
                    except pymysql.Error:  # a type of another mode
                        follower.follow()
                        continue
                    assert puzzled == [], (mode, statement)
                    follower.assert_touched_equal()
                    taken += 1
    assert taken > len(modes) * len(TYPES)


@pytest.mark.parametrize("kind", ["modes", "sessions", pytest.param("others", marks=pytest.mark.slow)])
def test_values_of_added_columns_are_those_of_select(server: MariaDb, kind: str) -> None:
    sessions = {
        "modes": [f"SET sql_mode = '{mode}'" for mode in MODES],
        "sessions": SESSIONS,
        "others": [f"SET sql_mode = '{mode}'" for mode in OTHER_MODES],
    }[kind]
    followed = 0
    with MariaDb(server.version) as fresh, Follower(fresh) as follower:
        follower.run("CREATE DATABASE d CHARACTER SET utf8mb4", "USE d")
        for session in sessions:
            for declared in DEFAULTS:
                follower.run(
                    "SET NAMES utf8mb4, time_zone = SYSTEM, sql_mode = ''",
                    "CREATE OR REPLACE TABLE t (k INT PRIMARY KEY)",
                    "INSERT INTO t VALUES (1)",
                    session,
                )
                try:
                    asked = asked_for(follower, f"ALTER TABLE t ADD c {declared}")
                except pymysql.Error:
                    continue
                if isinstance(asked, Evolved):
                    found = fresh.sql("SET NAMES utf8mb4", "SELECT c FROM d.t")[0][0]
                    assert is_value(dict(asked.values).get("c", NULL), found), (session, declared)
                    followed += 1
    assert followed > len(sessions) * 5


def asked_for(follower: Follower, sql: str) -> TargetEffect:
    """Execute an ALTER of `t`, and return what it asks of a mirror's target."""
    before = follower.history.table("d", "t")
    assert before is not None
    (effect,) = effects(follower, sql)
    return target_effect(effect, before, ValuePolicy())


def effects(follower: Follower, sql: str) -> list[StatementEffect]:
    with follower.session.cursor() as cursor:
        cursor.execute(sql)
    logged = [event for event in follower.events() if isinstance(event, QueryEvent)]
    found = [effect_of(event, follower.rules) for event in logged]
    for event in logged:
        follower.resolver.apply(event, server=follower.rules)
    return [one for one in found if one is not None]


def is_value(known: KnownValue, value: object) -> bool:
    """Tell whether the value that a target gets is the one that the server selects."""
    content = known.content
    if content is None or value is None:
        return content is None and value is None
    if isinstance(content, bytes):
        return content == (value.encode() if isinstance(value, str) else value)
    if isinstance(value, float):
        return abs(float(content) - value) < 1e-6
    if isinstance(value, int | Decimal):
        return Decimal(content) == value
    return str(value) in (content, f"{content} 00:00:00")


FORMS: Final[tuple[tuple[str, Verb], ...]] = (
    ("TRUNCATE TABLE TRUNC", Verb.TRUNCATE_TABLE),
    ("TRUNCATE DeBe.TRUNC WAIT 3", Verb.TRUNCATE_TABLE),
    ("TRUNCATE TABLE .Trunc", Verb.TRUNCATE_TABLE),
    ("/* x */ TRUNCATE /*! TABLE */ `DEBE` . `TRUNC` -- x", Verb.TRUNCATE_TABLE),
    ("SET STATEMENT lock_wait_timeout=5 FOR TRUNCATE TABLE TRUNC", Verb.TRUNCATE_TABLE),
    (
        "SET STATEMENT max_statement_time=9 FOR SET STATEMENT lock_wait_timeout=(SELECT 5) FOR TRUNCATE Trunc",
        Verb.TRUNCATE_TABLE,
    ),
    ("/*! SET STATEMENT max_statement_time=9 FOR*/ /*M!100000 TRUNCATE TABLE */ TRUNC;", Verb.TRUNCATE_TABLE),
    ("EXECUTE IMMEDIATE 'SET STATEMENT max_statement_time=9 FOR TRUNCATE TABLE TRUNC'", Verb.TRUNCATE_TABLE),
    ("BEGIN NOT ATOMIC TRUNCATE TABLE TRUNC; END", Verb.TRUNCATE_TABLE),
    ("SET STATEMENT max_statement_time=9 FOR BEGIN NOT ATOMIC TRUNCATE TABLE TRUNC; END", Verb.TRUNCATE_TABLE),
    ("ALTER TABLE TRUNC\n ADD COLUMN NewC DATE", Verb.ALTER_TABLE),
    ("SET STATEMENT lock_wait_timeout=5 FOR ALTER ONLINE TABLE Trunc ADD COLUMN Newd DATE", Verb.ALTER_TABLE),
    ("SET STATEMENT lock_wait_timeout=5 FOR CREATE INDEX I ON TRUNC (NewC)", Verb.CREATE_INDEX),
    ("DROP INDEX i ON TRUNC", Verb.DROP_INDEX),
    ("RENAME TABLE TRUNC TO Other, OTHER TO trunC", Verb.RENAME_TABLES),
    ("CREATE OR REPLACE TABLE TRUNC (Id INT)", Verb.CREATE_TABLE),
    ("DROP TABLE /*! IF EXISTS */ TRUNC", Verb.DROP_TABLES),
)


def test_every_form_of_a_statement_names_its_tables_as_stored(server: MariaDb) -> None:
    with MariaDb(server.version, "--lower-case-table-names=1") as lower, Follower(lower, LOWER) as follower:
        follower.run(
            "CREATE DATABASE DeBe CHARACTER SET utf8mb4", "USE DEBE", "CREATE TABLE Trunc (Id INT PRIMARY KEY)"
        )
        for sql, verb in FORMS:
            (effect,) = effects(follower, sql)
            assert effect.verb is verb, sql
            assert effect.tables[0] == ("debe", "trunc"), sql
            follower.assert_equal()


def test_the_mode_that_set_statement_hides_makes_no_wrong_column(server: MariaDb) -> None:
    with MariaDb(server.version) as fresh, Follower(fresh) as follower:
        follower.run("CREATE DATABASE d CHARACTER SET utf8mb4", "USE d", "CREATE TABLE t (k INT)")
        assert follower.run("SET STATEMENT sql_mode = 'ORACLE' FOR ALTER TABLE t ADD c DATE") != []
        assert follower.history.table("d", "t") is None
