"""What statements ask of a target: actions, other kinds of statements, and what the stream cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from replica.rows.types.types import ValuePolicy
from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from replica.schema.effects.history import SchemaHistory
from streaming_source.mirroring.statements.alterations import (
    Dropped,
    Emptied,
    Evolved,
    Made,
    NotInRows,
    changes_rows,
    target_effect,
)
from streaming_source.mirroring.writers.target_format import AddColumns, DropColumns, DropNotNull, RenameColumn, SetType
from streaming_source.transforms.table_rules import TableRule
from streaming_source.transforms.transformed_images import UNCHANGED, TargetColumn

if TYPE_CHECKING:
    from streaming_source.mirroring.writers.target_format import TargetAction

SESSION = StatementContext(database="shop")
TABLE = """CREATE TABLE orders (
    id INT PRIMARY KEY, name VARCHAR(30) CHARACTER SET utf8mb4, price DECIMAL(10,2), at DATETIME,
    n INT UNSIGNED NOT NULL, kind ENUM('a','b') CHARACTER SET utf8mb4
)"""


def added(*, comment: str = "", **columns: str) -> AddColumns:
    return AddColumns(tuple(TargetColumn(name, kind, nullable=True, comment=comment) for name, kind in columns.items()))


def asked(sql: str, rule: TableRule = UNCHANGED) -> object:
    history = SchemaHistory()
    history.apply(TABLE, SESSION)
    before = history.table("shop", "orders")
    assert before is not None
    return target_effect(StatementEffect(sql, SESSION), before, ValuePolicy(), rule)


@pytest.mark.parametrize(
    ("sql", "actions"),
    [
        ("ALTER TABLE orders ADD COLUMN note TEXT COMMENT 'it''s'", (added(note="STRING", comment="it's"),)),
        ("ALTER TABLE orders ADD a INT FIRST, ADD b TIME", (added(a="INT", b="STRING"),)),
        ("ALTER TABLE orders ADD a INT DEFAULT NULL, ADD b TEXT NULL", (added(a="INT", b="STRING"),)),
        ("ALTER TABLE orders DROP price, DROP COLUMN at", (DropColumns(("price", "at")),)),
        ("ALTER TABLE orders RENAME COLUMN name TO title", (RenameColumn("name", "title"),)),
        ("ALTER TABLE orders MODIFY id BIGINT NOT NULL", (SetType("id", "BIGINT"),)),
        ("ALTER TABLE orders MODIFY price DECIMAL(12,2)", (SetType("price", "DECIMAL(12,2)"),)),
        ("ALTER TABLE orders MODIFY n INT UNSIGNED NULL", (DropNotNull("n"),)),
        ("ALTER TABLE orders CHANGE n m BIGINT", (RenameColumn("n", "m"), DropNotNull("m"))),
        ("ALTER TABLE orders DROP at, ADD at DATETIME", (DropColumns(("at",)), added(at="TIMESTAMP_NTZ"))),
        ("ALTER TABLE orders MODIFY name VARCHAR(60) CHARACTER SET utf8mb4", ()),
        ("ALTER TABLE orders MODIFY at DATETIME(6)", ()),
        ("ALTER TABLE orders MODIFY kind ENUM('a','b','c') CHARACTER SET utf8mb4", ()),
        ("ALTER TABLE orders ADD INDEX (name), COMMENT = 'x'", ()),
        ("ALTER TABLE shop.orders ENGINE=InnoDB", ()),
        ("CREATE INDEX i ON orders (name)", ()),
        (
            "ALTER TABLE orders RENAME COLUMN name TO price, RENAME COLUMN price TO name",
            (
                RenameColumn("name", "_renamed_0"),
                RenameColumn("price", "name"),
                RenameColumn("_renamed_0", "price"),
            ),
        ),
        (
            "ALTER TABLE orders DROP at, CHANGE price at DECIMAL(10,2), ADD price INT",
            (DropColumns(("at",)), RenameColumn("price", "at"), added(price="INT")),
        ),
        (
            "ALTER TABLE orders CHANGE name Name VARCHAR(30) CHARACTER SET utf8mb4",
            (RenameColumn("name", "_renamed_0"), RenameColumn("_renamed_0", "Name")),
        ),
        ("CREATE DATABASE IF NOT EXISTS shop", ()),
    ],
)
def test_what_a_target_can_follow(sql: str, actions: tuple[TargetAction, ...]) -> None:
    found = asked(sql)
    assert isinstance(found, Evolved)
    assert found.actions == actions


@pytest.mark.parametrize(
    ("sql", "why", "policy"),
    [
        ("ALTER TABLE orders ADD a INT AS (id + 1) STORED", "new column a values", "onAlter"),
        ("ALTER TABLE orders ADD a INT DEFAULT (id + 1)", "new column a values", "onAlter"),
        ("ALTER TABLE orders ADD a INT AUTO_INCREMENT UNIQUE", "new column a values", "onAlter"),
        ("ALTER TABLE orders MODIFY n INT UNSIGNED AS (id + 1) STORED", "generated column", "onAlter"),
        ("ALTER TABLE orders ADD a TIMESTAMP", "new column a values", "onAlter"),
        ("ALTER TABLE orders ADD a DATETIME DEFAULT NOW()", "new column a values", "onAlter"),
        ("ALTER TABLE orders MODIFY name VARCHAR(5) CHARACTER SET utf8mb4", "values of the column name", "onAlter"),
        ("ALTER TABLE orders MODIFY name VARCHAR(30) CHARACTER SET latin1", "values of the column name", "onAlter"),
        ("ALTER TABLE orders MODIFY price DECIMAL(12,3)", "values of the column price", "onAlter"),
        ("ALTER TABLE orders MODIFY price INT", "values of the column price", "onAlter"),
        ("ALTER TABLE orders MODIFY price DECIMAL(10,2) NOT NULL", "values of the column price", "onAlter"),
        ("ALTER TABLE orders MODIFY id INT UNSIGNED NOT NULL", "values of the column id", "onAlter"),
        ("ALTER TABLE orders MODIFY kind ENUM('b','a') CHARACTER SET utf8mb4", "values of the column kind", "onAlter"),
        ("ALTER TABLE orders DROP PRIMARY KEY", "primary key", "onAlter"),
        ("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (name)", "primary key", "onAlter"),
        ("ALTER TABLE orders ADD SYSTEM VERSIONING", "system-versioned", "onAlter"),
        ("ALTER TABLE orders MODIFY price DECIMAL(40,2)", "would become STRING", "onAlter"),
        ("ALTER IGNORE TABLE orders ADD UNIQUE KEY (name)", "may remove rows", "onAlter"),
        ("ALTER ONLINE IGNORE TABLE orders ADD c INT", "may remove rows", "onAlter"),
        ("ALTER TABLE orders ENGINE=BLACKHOLE", "may change rows", "onAlter"),
        ("REPAIR NO_WRITE_TO_BINLOG TABLE other, orders QUICK", "damaged", "onAlter"),
        ("ALTER TABLE orders MODIFY id", "ends too early", "onAlter"),
        ("ALTER TABLE orders DROP PARTITION p1", "partitions", "onTruncate"),
        ("ALTER TABLE orders TRUNCATE PARTITION p1", "partitions", "onTruncate"),
        ("ALTER TABLE orders EXCHANGE PARTITION p1 WITH TABLE other", "partitions", "onSwap"),
        ("ALTER TABLE other EXCHANGE PARTITION p1 WITH TABLE orders", "partitions", "onSwap"),
        ("RENAME TABLE orders TO old, fresh TO orders", "another table takes its name", "onSwap"),
        ("ALTER TABLE fresh RENAME TO orders", "another table takes its name", "onSwap"),
        ("UPDATE orders SET n = 1", "without the rows", "onSwap"),
        ("SET STATEMENT max_statement_time=1 FOR DELETE FROM orders", "without the rows", "onSwap"),
        ("SELECT bump()", "without the rows", "onSwap"),
        ("GIBBER orders", "without the rows", "onSwap"),
        ("CREATE OR REPLACE TABLE orders SELECT 1 AS id", "without the rows", "onSwap"),
    ],
)
def test_what_the_stream_does_not_tell_is_said_with_the_policy_that_rules_it(sql: str, why: str, policy: str) -> None:
    found = asked(sql)
    assert isinstance(found, NotInRows)
    assert why in found.why
    assert found.policy == policy


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("TRUNCATE TABLE orders", Emptied()),
        ("TRUNCATE orders", Emptied()),
        ("DROP TABLE IF EXISTS orders, lines", Dropped()),
        ("DROP DATABASE shop", Dropped()),
        ("CREATE OR REPLACE DATABASE shop", Dropped()),
        ("CREATE TABLE orders (id INT PRIMARY KEY)", Made(always=True)),
        ("CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY)", Made(always=False)),
        ("ALTER TABLE orders RENAME TO old", Dropped()),
        ("RENAME TABLE orders TO old", Dropped()),
        ("RENAME TABLE orders TO tmp, tmp TO old", Dropped()),
    ],
)
def test_tables_that_come_and_go(sql: str, kind: object) -> None:
    assert asked(sql) == kind


RULE = TableRule(leave_out=("price",), hash=("name",), where="n > 0", rename={"at": "ordered_at"})


@pytest.mark.parametrize(
    ("sql", "actions"),
    [
        ("ALTER TABLE orders MODIFY name VARCHAR(60) CHARACTER SET utf8mb4", ()),
        ("ALTER TABLE orders DROP price", ()),
        ("ALTER TABLE orders DROP at", (DropColumns(("ordered_at",)),)),
        ("ALTER TABLE orders ADD note TEXT", (added(note="STRING"),)),
    ],
)
def test_a_target_with_a_rule_is_altered_by_its_own_columns(sql: str, actions: tuple[TargetAction, ...]) -> None:
    found = asked(sql, RULE)
    assert isinstance(found, Evolved)
    assert found.actions == actions


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders DROP price, ADD price TEXT",
        "ALTER TABLE orders RENAME COLUMN price TO kind, RENAME COLUMN kind TO price",
        "ALTER TABLE orders CHANGE name kind TEXT, CHANGE kind name TEXT",
    ],
)
def test_a_column_that_takes_the_place_of_one_with_a_rule_is_refused(sql: str) -> None:
    with pytest.raises(ConfigError, match="it puts another column in the place of"):
        asked(sql, RULE)


def test_values_that_a_filter_asks_for_must_stay() -> None:
    found = asked("ALTER TABLE orders MODIFY price DECIMAL(4,1)", RULE)
    assert isinstance(found, NotInRows)
    assert "it may change values of the column price" in found.why


def test_names_are_told_where_rows_have_to_be_read_again_too() -> None:
    found = asked("ALTER TABLE orders RENAME COLUMN name TO title, DROP at, ADD at INT, MODIFY price INT")
    assert isinstance(found, NotInRows)
    assert found.names == {"id": "id", "title": "name", "price": "price", "n": "n", "kind": "kind"}
    assert found.definition is not None
    assert [column.name for column in found.definition.columns] == ["id", "title", "price", "n", "kind", "at"]


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("UPDATE orders SET n = 1", True),
        ("GIBBER orders", True),
        ("CREATE OR REPLACE TABLE orders SELECT 1 AS id", False),
        ("ALTER TABLE orders DROP PARTITION p1", False),
        ("ALTER TABLE orders ADD a INT", False),
        ("TRUNCATE orders", False),
    ],
)
def test_a_statement_that_changes_a_definition_is_no_change_of_rows_alone(sql: str, *, changes: bool) -> None:
    assert changes_rows(StatementEffect(sql, SESSION)) is changes
