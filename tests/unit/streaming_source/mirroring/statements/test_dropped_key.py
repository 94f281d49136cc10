"""Statements that take away what tells rows apart, and those that do not.

Indexes whose columns show two values as one are no keys of targets.
"""

from __future__ import annotations

import pytest

from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from replica.schema.effects.history import SchemaHistory
from replica.schema.table import ColumnSchema, TableSchema
from replica.snapshot.check.facts import IndexPart, TableIndex
from streaming_source.mirroring.statements.alter_proof import ambiguous_names, dropped_key, sharp_indexes

SESSION = StatementContext(database="shop")
UNIQUE = "CREATE TABLE t (code CHAR(3) NOT NULL, part INT NOT NULL, v INT, UNIQUE k (code, part), KEY other (v))"
PRIMARY = "CREATE TABLE t (code CHAR(3), part INT, v INT, PRIMARY KEY (code, part), UNIQUE u (v))"


def lost(made: str, sql: str, *keys: str) -> str | None:
    history = SchemaHistory()
    history.apply(made, SESSION)
    history.apply(sql, SESSION)
    after = history.table("shop", "t")
    assert after is not None
    return dropped_key(StatementEffect(sql, SESSION), after, keys)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DROP INDEX k ON t", "unique index"),
        ("ALTER TABLE t DROP KEY k", "unique index"),
        ("ALTER TABLE t ADD w INT, DROP INDEX IF EXISTS other", "unique index"),
        ("ALTER TABLE t DROP CONSTRAINT k", "unique index"),
        ("ALTER TABLE t MODIFY part INT", "several rows may have NULL in the key column part"),
        ("ALTER TABLE t DROP COLUMN part", "drops the key column part"),
        ("ALTER TABLE t RENAME COLUMN code TO label", "drops the key column code"),
        ("ALTER TABLE t CHANGE code other CHAR(3) NOT NULL, CHANGE v code INT NOT NULL", "name of the key column code"),
        ("ALTER TABLE t DROP code, ADD code INT NOT NULL", "name of the key column code"),
        ("CREATE OR REPLACE UNIQUE INDEX k ON t (code)", "unique index"),
        ("ALTER TABLE t DROP COLUMN v", None),
        ("ALTER TABLE t ADD INDEX (v), MODIFY part BIGINT NOT NULL", None),
        ("CREATE INDEX i ON t (v)", None),
    ],
)
def test_a_unique_index(sql: str, why: str | None) -> None:
    found = lost(UNIQUE, sql, "code", "part")
    assert (found is None) == (why is None)
    assert why is None or why in str(found)


def test_a_primary_key_and_none_at_all() -> None:
    for sql in ("DROP INDEX u ON t", "ALTER TABLE t DROP KEY u", "ALTER TABLE t MODIFY part BIGINT"):
        assert lost(PRIMARY, sql, "part", "code") is None
    assert lost(UNIQUE, "DROP INDEX k ON t") is None


def test_a_label_that_looks_like_none_at_all() -> None:
    made = "CREATE TABLE t (kind ENUM('a') NOT NULL, id INT NOT NULL, PRIMARY KEY (kind, id))"
    found = lost(made, "ALTER TABLE t MODIFY kind ENUM('a', '') NOT NULL", "kind", "id")
    assert found is not None
    assert "label '' of the key column kind" in found
    assert lost(made, "ALTER TABLE t MODIFY kind ENUM('a', 'b') NOT NULL", "kind", "id") is None


def column(name: str, kind: str, labels: tuple[str, ...] | None = None) -> ColumnSchema:
    return ColumnSchema(name=name, data_type=kind, column_type=kind, nullable=False, labels=labels)


TABLE = TableSchema(
    database="d",
    table="t",
    columns=(column("Kind", "enum", ("a", "")), column("tags", "set", ("", "b")), column("id", "int")),
)


def index(name: str, *columns: str) -> TableIndex:
    parts = tuple(IndexPart(one, prefix=False, descending=False) for one in columns)
    return TableIndex(name=name, unique=True, kind="BTREE", ignored=False, parts=parts)


def test_those_without_such_a_column_are_left() -> None:
    both, tags, alone = index("PRIMARY", "kind", "id"), index("u", "tags"), index("v", "id")
    assert sharp_indexes(TABLE, [both, tags, alone]) == [alone]
    assert ambiguous_names(TABLE.columns) == ["Kind", "tags"]
    assert ambiguous_names([column("k", "enum", ("a", "b")), column("t", "varchar")]) == []
