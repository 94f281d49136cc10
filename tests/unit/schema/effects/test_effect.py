"""Statements with their session: what they do, in every form in which a server logs them."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.definition.columns import EMPTY_STRING_IS_NULL
from replica.schema.definition.definition import Encoding
from replica.schema.definition.session import ServerRules, StatementContext
from replica.schema.effects.effect import Outline, StatementEffect, changes_columns, effect_of, outline_of
from replica.schema.statements.changed_tables import Changed
from replica.schema.statements.statements import Verb
from replica.schema.text.sql_tokens import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from tests.unit.schema.ddl import logged

LOWER = ServerRules(lower_case=True)


def effect(sql: str, **session: object) -> StatementEffect:
    return StatementEffect(sql, StatementContext(database="d", **session))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE t",
        "TRUNCATE TABLE .t WAIT 3",
        "truncate /* x */ table `d` . `t` -- ends",
        "SET STATEMENT lock_wait_timeout=5 FOR TRUNCATE TABLE t",
        "SET /* x */ STATEMENT max_statement_time=1 FOR SET STATEMENT lock_wait_timeout=4 FOR TRUNCATE TABLE t;",
        "SET STATEMENT debug_dbug='FOR', x=(SELECT 1 FROM a FOR UPDATE) FOR\nTRUNCATE t",
        "SET STATEMENT lock_wait_timeout=5+1 FOR /*! TRUNCATE*/ TABLE t;",
        "/*! SET STATEMENT max_statement_time=1 FOR*/ /*M!100000 TRUNCATE TABLE */ t",
        "/* before */ -- a line\n# another\nTRUNCATE TABLE t",
    ],
)
def test_a_table_is_emptied(sql: str) -> None:
    found = effect(sql)
    assert found.empties
    assert found.tables == (("d", "t"),)
    assert found.changed == Changed((("d", "t"),), defines=True, removes=True)
    assert found.words[0] == "TRUNCATE"


def test_names_are_as_the_server_stores_them() -> None:
    assert effect("TRUNCATE TABLE D.TRUNC").tables == (("D", "TRUNC"),)
    assert effect("TRUNCATE TABLE D.TRUNC", server=LOWER).tables == (("d", "trunc"),)
    assert effect("RENAME TABLE A TO B, E.`C` TO c", server=LOWER).tables == (
        ("d", "a"),
        ("d", "b"),
        ("e", "c"),
        ("d", "c"),
    )
    altered = effect("ALTER TABLE ALT ADD NewC INT, RENAME TO New", server=LOWER)
    assert altered.tables == (("d", "alt"),)
    assert altered.alteration is not None
    assert altered.alteration.rename == ("d", "new")
    assert [item.column.name for _, item in altered.alteration.added] == ["NewC"]
    assert effect("DELETE FROM E.A USING E.A, B", server=LOWER).changed == Changed((("e", "a"),), removes=True)
    assert effect("DROP DATABASE E", server=LOWER).head is not None
    assert effect("DROP DATABASE E", server=LOWER).head.database == "e"  # type: ignore[union-attr]


def test_the_sessions_mode_rules_quotes_and_backslashes() -> None:
    found = effect('ALTER TABLE "T" ADD c INT', sql_mode=ANSI_QUOTES)
    assert found.tables == (("d", "T"),)
    added = effect(r"ALTER TABLE t ADD c VARCHAR(9) DEFAULT 'a\'", sql_mode=NO_BACKSLASH_ESCAPES).alteration
    assert added is not None
    ((_, item),) = added.added
    assert [token.text for token in item.default or ()] == ["a\\"]


def test_a_sql_mode_of_set_statement_hides_the_one_that_the_server_read_by() -> None:
    for sql in ("ALTER TABLE t ADD c DATE", "ALTER TABLE t ALTER c SET DEFAULT 'a'", "ALTER TABLE t MODIFY c INT"):
        found = effect(f"SET STATEMENT lock_wait_timeout=1, sql_mode='ORACLE' FOR {sql}", sql_mode=512)
        assert found.tables == (("d", "t"),)
        with pytest.raises(SchemaError, match="SET STATEMENT"):
            _ = found.alteration
    assert effect("SET STATEMENT sql_mode='ORACLE' FOR ALTER TABLE t DROP c").alteration is not None
    assert effect("SET STATEMENT sql_mode='ORACLE' FOR TRUNCATE t").empties


@pytest.mark.parametrize(
    ("declared", "session", "default"),
    [
        ("VARCHAR(9) DEFAULT ''", {"sql_mode": EMPTY_STRING_IS_NULL}, "NULL"),
        ("VARCHAR(9) DEFAULT ''", {}, ""),
        ("VARCHAR(9) DEFAULT '漢'", {"connection": "latin1"}, "\ufffd"),
        ("VARCHAR(9) DEFAULT 'é'", {"connection": "latin1"}, "é"),
        ("VARCHAR(9) DEFAULT '\U0001f600'", {"connection": "utf8mb3"}, "\ufffd"),
        ("VARCHAR(9) DEFAULT '漢'", {"connection": "binary"}, "漢"),
        ("BINARY(3) DEFAULT 'a'", {"connection": "ucs2"}, "\ufffd"),
    ],
)
def test_the_text_of_a_default_is_what_the_server_takes(
    declared: str, session: dict[str, object], default: str
) -> None:
    change = effect(f"ALTER TABLE t ADD c {declared}", **session).alteration
    assert change is not None
    ((_, item),) = change.added
    assert [token.text for token in item.default or ()] == [default]


def test_a_temporary_table_of_the_session() -> None:
    for sql in ("TRUNCATE t", "ALTER TABLE t ADD a INT", "DROP INDEX i ON t"):
        head = effect(sql, uses_temporary=True).head
        assert head is not None
        assert head.temporary
        assert effect(sql, uses_temporary=True).changed is None
    made = effect("CREATE TABLE n LIKE t", uses_temporary=True).head
    assert made is not None
    assert not made.temporary, "the table that it is like is the temporary one"


def test_an_index_and_no_table() -> None:
    assert effect("CREATE UNIQUE INDEX i ON t (a)").verb is Verb.CREATE_INDEX
    assert effect("SET STATEMENT max_statement_time=1 FOR DROP INDEX i ON e.t").tables == (("e", "t"),)
    assert effect("CREATE VIEW v AS SELECT 1").verb is None
    assert effect("INSERT INTO t VALUES (1)").tables == ()
    assert effect("INSERT INTO t VALUES (1)").alteration is None


def test_a_part_that_is_not_understood_leaves_the_others() -> None:
    found = effect("ALTER TABLE t ADD c WEIRD")
    assert found.tables == (("d", "t"),)
    with pytest.raises(SchemaError, match="not known"):
        _ = found.alteration


def test_an_alter_counts_when_it_is_committed() -> None:
    sql = "ALTER TABLE t ADD a INT"
    assert effect_of(logged(sql, extra=GtidExtraFlag.START_ALTER)) is None
    assert effect_of(logged(sql, extra=GtidExtraFlag.ROLLBACK_ALTER)) is None
    committed = effect_of(logged(sql, extra=GtidExtraFlag.COMMIT_ALTER), LOWER)
    assert committed is not None
    assert (committed.sql, committed.context.server) == (sql, LOWER)


@pytest.mark.parametrize(
    "context",
    [
        StatementContext(),
        StatementContext(
            database="größe",
            sql_mode=1 << 40,
            encoding=Encoding("latin1", "latin1_bin"),
            explicit_timestamps=False,
            time_zone="+02:00",
            server=ServerRules(110_803, lower_case=True),
            thread=7,
            failed=True,
        ),
    ],
)
def test_a_stored_context_is_the_same_again(context: StatementContext) -> None:
    assert StatementContext.restored(context.stored()) == context
    assert StatementEffect("DROP TABLE t", context) == StatementEffect("DROP TABLE t", context)


T, U, V = ("d", "t"), ("d", "u"), ("e", "v")


@pytest.mark.parametrize(
    ("sql", "outline"),
    [
        ("CREATE TABLE t (a INT)", Outline((T,), (T,), creates=True)),
        ("CREATE OR REPLACE TABLE t LIKE u", Outline((T,), (T,), creates=True)),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", Outline((T,), (T,))),
        ("/* hello */ ALTER TABLE e.v ADD b INT", Outline((V,), (V,))),
        ("DROP TABLE t, e.v", Outline((T, V), (), frozenset({T, V}))),
        ("DROP TEMPORARY TABLE t", Outline((T,), (), frozenset({T}))),
        ("RENAME TABLE t TO u", Outline((T, U), (U,), frozenset({T}))),
        ("RENAME TABLE t TO e.v, u TO t", Outline((T, V, U), (T, V), frozenset({U}))),
        ("RENAME TABLE t TO e.v, u TO t, e.v TO u", Outline((T, V, U), (T, U), frozenset({V}))),
        ("DROP DATABASE e", Outline()),
        ("ALTER TABLE 'no name' ADD b INT", Outline()),  # may concern any table
        ("CREATE TEMPORARY TABLE t (a INT)", None),
        ("TRUNCATE t", None),
        ("INSERT INTO t VALUES (1)", None),
        ("CREATE VIEW t AS SELECT 1", None),
    ],
)
def test_tables(sql: str, outline: Outline | None) -> None:
    assert outline_of(logged(sql)) == outline


def test_of_an_alter_in_two_phases_only_the_commit_counts() -> None:
    sql = "ALTER TABLE t ADD b INT"
    assert outline_of(logged(sql, extra=GtidExtraFlag.START_ALTER)) is None
    assert outline_of(logged(sql, extra=GtidExtraFlag.ROLLBACK_ALTER)) is None
    assert outline_of(logged(sql, extra=GtidExtraFlag.COMMIT_ALTER)) == Outline((T,), (T,))


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("ALTER TABLE t ADD b INT", True),
        ("ALTER TABLE t RENAME COLUMN a TO b", True),
        ("ALTER TABLE t DROP a", True),
        ("ALTER TABLE t MODIFY a BIGINT", True),
        ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", True),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", True),
        ("ALTER TABLE t ADD INDEX (a)", False),
        ("ALTER TABLE t ENGINE=InnoDB", False),
        ("ALTER TABLE t FORCE", False),
        ("CREATE TABLE IF NOT EXISTS t (a INT)", False),
        ("CREATE TABLE t (a INT)", True),
        ("RENAME TABLE u TO t", True),
        ("ALTER TABLE t CHANGE a", True),
    ],
)
def test_changes_of_columns(sql: str, *, changes: bool) -> None:
    assert changes_columns(logged(sql)) is changes
