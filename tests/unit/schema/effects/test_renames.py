"""Which names statements move tables to: RENAME with its swaps, ALTER that renames, and what is not understood."""

from __future__ import annotations

import pytest

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.effects.effect import new_names
from tests.unit.schema.ddl import logged

T, U, V = ("d", "t"), ("d", "u"), ("e", "v")


@pytest.mark.parametrize(
    ("sql", "moved"),
    [
        ("RENAME TABLE t TO u", {U: T}),
        ("RENAME TABLE t TO e.v, u TO t", {V: T, T: U}),
        ("RENAME TABLE t TO e.v, u TO t, e.v TO u", {T: U, U: T}),
        ("RENAME TABLE t TO u, u TO t", {}),
        ("ALTER TABLE t RENAME TO e.v", {V: T}),
        ("ALTER TABLE t ADD b INT, RENAME u, ALGORITHM=COPY", {U: T}),
        ("ALTER TABLE t RENAME COLUMN a TO b", {}),
        ("ALTER TABLE t RENAME t", {}),
        ("ALTER TABLE t CONVERT PARTITION p TO TABLE u", {U: T}),
        ("CREATE TABLE u LIKE t", {}),
        ("ALTER TABLE 'no name' ADD b INT", {}),
        ("DROP TABLE t", {}),
        ("INSERT INTO t VALUES ('rename')", {}),
    ],
)
def test_names(sql: str, moved: dict[tuple[str, str], tuple[str, str]]) -> None:
    assert new_names(logged(sql)) == moved


def test_a_rename_that_is_not_understood_is_refused() -> None:
    with pytest.raises(SchemaError, match="renames something is not understood: ALTER TABLE 'no name' RENAME TO u"):
        new_names(logged("ALTER TABLE 'no name' RENAME TO u"))


def test_of_an_alter_in_two_phases_only_the_commit_counts() -> None:
    sql = "ALTER TABLE t RENAME TO u"
    assert new_names(logged(sql, extra=GtidExtraFlag.START_ALTER)) == {}
    assert new_names(logged(sql, extra=GtidExtraFlag.COMMIT_ALTER)) == {U: T}
