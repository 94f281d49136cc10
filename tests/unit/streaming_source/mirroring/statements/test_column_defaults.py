"""Defaults of columns, as statements change them."""

from __future__ import annotations

import pytest

from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.statements.added_values import Defaults, defaults_after, numbered, same_defaults

BEFORE: Defaults = {"id": "AUTO_INCREMENT", "v": "5", "note": "'it\\'s'", "b": None}


@pytest.mark.parametrize(
    ("sql", "changed"),
    [
        ("ALTER TABLE t ALTER v SET DEFAULT -7, ALTER COLUMN note DROP DEFAULT", {"v": "- 7", "note": None}),
        ("ALTER TABLE t ALTER COLUMN IF EXISTS V SET DEFAULT 'it''s \\\\'", {"v": "'it''s \\\\'"}),
        ('ALTER TABLE t MODIFY v INT NOT NULL, ADD w VARCHAR(9) DEFAULT "x"', {"v": None, "w": "'x'"}),
        ("ALTER TABLE t ADD (a INT, at TIMESTAMP NULL), ADD COLUMN c BIT(3) DEFAULT b'1'",
         {"a": None, "at": "NULL", "c": "b '1'"}),
        ("ALTER TABLE t ALTER INDEX i IGNORED, ENGINE=Aria, COMMENT='ALTER v SET DEFAULT 1'", {}),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS v INT DEFAULT 9", {}),
        ("CREATE INDEX i ON t (v)", {}),
    ],
)  # fmt: skip
def test_a_statement(sql: str, changed: Defaults) -> None:
    assert defaults_after(StatementEffect(sql), BEFORE) == BEFORE | changed


def test_columns_that_go_or_are_called_otherwise() -> None:
    sql = "ALTER TABLE t DROP COLUMN b, CHANGE v n BIGINT DEFAULT 3, RENAME COLUMN note TO text"
    after = defaults_after(StatementEffect(sql), BEFORE)
    assert after == {"id": "AUTO_INCREMENT", "n": "3", "text": "'it\\'s'"}


def test_columns_that_change_their_names_among_each_other() -> None:
    sql = "ALTER TABLE t RENAME COLUMN v TO note, RENAME COLUMN note TO v, ALTER b SET DEFAULT 1, RENAME COLUMN b TO c"
    after = defaults_after(StatementEffect(sql), BEFORE)
    assert after == {"id": "AUTO_INCREMENT", "note": "5", "v": "'it\\'s'", "c": "1"}


def test_what_the_server_gives_is_no_default() -> None:
    after = defaults_after(StatementEffect("ALTER TABLE t ADD g INT AS (v + 1), MODIFY v INT AUTO_INCREMENT"), BEFORE)
    assert after == BEFORE | {"v": "AUTO_INCREMENT"}
    assert numbered(after) == ["id", "v"]


def test_the_same_words_in_another_spelling() -> None:
    assert same_defaults({"a": "'it\\'s'", "b": None, "c": "b'1'"}, {"c": "b '1'", "a": "'it''s'", "b": None})
    assert not same_defaults({"a": None}, {"a": "NULL"})
    assert not same_defaults({"a": "1"}, {"a": "1", "b": None})
