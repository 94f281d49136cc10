"""The way from a table to its target, by what the control table keeps: names of keys, and which key of hashes it takes.

What rows become on it: tests/mirroring/operations/test_audit.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError
from replica.rows.types.types import ValuePolicy
from replica.schema.definition.session import StatementContext
from replica.schema.effects.history import SchemaHistory
from streaming_source.auditing.mirror.from_mirror import AS_IT_IS, MirroredRows, mirrored_rows
from streaming_source.transforms.hashes import HashKey
from streaming_source.transforms.table_rules import TableRule, kept_rule

if TYPE_CHECKING:
    from replica.schema.table import TableSchema

KEY = HashKey(b"k" * 32)
RULE = TableRule(leave_out=("secret",), hash=("email",), rename={"id": "number"})


def table() -> TableSchema:
    history = SchemaHistory()
    sql = "CREATE TABLE t (id INT, email VARCHAR(9), secret TEXT, PRIMARY KEY (id, email))"
    history.apply(sql, StatementContext(database="shop"))
    found = history.table("shop", "t")
    assert found is not None
    return found


def way(key: HashKey | None, mode: str = "current") -> MirroredRows:
    return mirrored_rows(mode, kept_rule(RULE, KEY), table(), ValuePolicy(), key)


def test_a_table_without_a_rule_is_compared_as_it_is() -> None:
    assert mirrored_rows("current", None, table(), ValuePolicy(), None) == AS_IT_IS
    assert mirrored_rows("history", None, table(), ValuePolicy(), KEY) != AS_IT_IS
    assert AS_IT_IS.keys(("id", "email")) == ("id", "email")


def test_a_rule_gives_columns_and_keys_the_names_of_the_target() -> None:
    found = way(KEY, "soft_delete")
    assert found.ruled is not None
    assert [column.name for column in found.ruled.columns] == ["number", "email"]
    assert found.keys(("id", "email")) == ("number", "email")


@pytest.mark.parametrize(
    ("key", "why"), [(None, "no key is given"), (HashKey(b"o" * 32), "hashKeyFile has another key than the target")]
)
def test_hashes_are_compared_with_their_own_key_alone(key: HashKey | None, why: str) -> None:
    with pytest.raises(ConfigError, match=f"its rule hashes columns, and {why}"):
        way(key)
