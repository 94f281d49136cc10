"""Statements of Delta tables: each action, and columns with comments."""

from __future__ import annotations

import pytest

from streaming_source.mirroring.writers.delta import alter_table, create_if_absent, create_or_replace, set_properties
from streaming_source.mirroring.writers.target_format import (
    AddColumns,
    DropColumns,
    DropNotNull,
    RenameColumn,
    SetType,
    TargetAction,
)
from streaming_source.transforms.transformed_images import TargetColumn

COLUMNS = (
    TargetColumn("id", "INT", nullable=False, comment=""),
    TargetColumn("a`b", "STRING", nullable=True, comment="${env:HOME}"),
)
COMMENT = r"COMMENT '\u0024\u007Benv\u003AHOME\u007D'"


@pytest.mark.parametrize(
    ("action", "change"),
    [
        (AddColumns(COLUMNS), f"ADD COLUMNS (`id` INT, `a``b` STRING {COMMENT})"),
        (DropColumns(("a`b", "c.d")), "DROP COLUMNS (`a``b`, `c.d`)"),
        (RenameColumn("a`b", "c.d"), "RENAME COLUMN `a``b` TO `c.d`"),
        (SetType("a`b", "DECIMAL(12,2)"), "ALTER COLUMN `a``b` TYPE DECIMAL(12,2)"),
        (DropNotNull("a`b"), "ALTER COLUMN `a``b` DROP NOT NULL"),
    ],
)
def test_each_action_is_one_statement(action: TargetAction, change: str) -> None:
    assert alter_table("lake.t", action) == f"ALTER TABLE lake.t {change}"


def test_a_table_is_made_of_columns_a_comment_and_properties() -> None:
    listed = f"(`id` INT NOT NULL, `a``b` STRING {COMMENT}) USING delta"
    properties = r"TBLPROPERTIES ('a\u002Eb' = '\u0027')"
    assert create_or_replace("lake.t", COLUMNS, "x", {"a.b": "'"}) == (
        f"CREATE OR REPLACE TABLE lake.t {listed} COMMENT 'x' {properties}"
    )
    assert create_if_absent("lake.t", COLUMNS, {"a.b": "'"}) == (
        f"CREATE TABLE IF NOT EXISTS lake.t {listed} {properties}"
    )
    assert set_properties("lake.t", {"a.b": "'"}) == f"ALTER TABLE lake.t SET {properties}"
