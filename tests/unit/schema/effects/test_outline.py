"""Which tables statements concern, from their heads; and whether an ALTER makes other columns."""

from __future__ import annotations

import pytest

from replica.protocol.constants import GtidExtraFlag
from replica.schema.effects.outline import Outline, changes_columns, outline_of
from tests.unit.schema.ddl import logged

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
