"""The value of a column that an INSERT leaves out: its constant default, NULL, or what a server puts there."""

from __future__ import annotations

import pytest

from replica.rows.types.types import ValuePolicy
from replica.schema.definition.session import StatementContext
from replica.schema.effects.history import SchemaHistory
from streaming_source.mirroring.apply.table_applier import omitted_value
from streaming_source.mirroring.statements.added_values import NULL, KnownValue
from streaming_source.transforms.transformed_images import target_columns


@pytest.mark.parametrize(
    ("declared", "default", "value"),
    [
        ("INT NOT NULL", "5", KnownValue("5", ("INT",))),
        ("INT", "NULL", NULL),
        ("INT", None, NULL),
        ("INT NOT NULL", None, KnownValue("0", ("INT",))),
        ("VARCHAR(9) CHARACTER SET utf8mb4", "'it\\'s'", KnownValue("it's")),
        ("TIMESTAMP NULL", "NULL", NULL),
        ("TIMESTAMP NOT NULL", "'2026-01-01 00:00:00'", None),
        ("TIMESTAMP NULL", None, None),
        ("INT", "1 + 1", None),
        ("INT", "AUTO_INCREMENT", None),
        ("VARCHAR(36) CHARACTER SET utf8mb4", "uuid()", None),
        ("DATETIME", "current_timestamp()", None),
        ("INET6", "'::1'", None),
        ("INET6", "NULL", NULL),
    ],
)
def test_it_is_known_or_not(declared: str, default: str | None, value: KnownValue | None) -> None:
    history = SchemaHistory()
    history.apply(f"CREATE TABLE t (c {declared})", StatementContext(database="d"))
    table = history.table("d", "t")
    assert table is not None
    policy = ValuePolicy()
    kind = target_columns(table, policy)[0].type
    assert omitted_value(table.columns[0], default, kind, policy) == value
