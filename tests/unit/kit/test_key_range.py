"""Conditions on keys. That servers make ranges of them: tests/integration/snapshot/tables/test_table_keys.py."""

from __future__ import annotations

from replica.schema.table import ColumnSchema
from replica.snapshot.rows.row_block import TableKey
from tests.kit.snapshot.key_range import after_key, up_to
from tests.kit.snapshot.result_rows import table

SCHEMA = table(
    [
        ColumnSchema(name="a", data_type="int", column_type="int(11)", nullable=False),
        ColumnSchema(name="b`", data_type="varbinary", column_type="varbinary(9)", nullable=False, octets=9),
        ColumnSchema(name="e", data_type="enum", column_type="enum('x','y','z')", labels=("x", "y", "z")),
    ]
)
FIVE, TEXT = b"\4\0\5\0\0\0", b"\1\0t"


def test_a_key_of_one_column() -> None:
    key = TableKey("k", (0,), ordered=True)
    assert after_key(SCHEMA, key, FIVE) == "(`a` > 5)"
    assert up_to(SCHEMA, key, FIVE) == "(`a` < 5) OR (`a` = 5)"


def test_a_key_of_two() -> None:
    key = TableKey("k", (1, 0), ordered=True)
    assert after_key(SCHEMA, key, TEXT + FIVE) == "(`b``` > x'74') OR (`b``` = x'74' AND `a` > 5)"
    assert up_to(SCHEMA, key, TEXT + FIVE) == (
        "(`b``` < x'74') OR (`b``` = x'74' AND `a` < 5) OR (`b``` = x'74' AND `a` = 5)"
    )


def test_labels_are_listed() -> None:
    key = TableKey("k", (2,), ordered=True)
    found = [
        (after_key(SCHEMA, key, b"\1\0" + bytes([n])), up_to(SCHEMA, key, b"\1\0" + bytes([n]))) for n in (0, 2, 3)
    ]
    assert found == [
        ("(`e` IN (1, 2, 3))", "(FALSE) OR (`e` = 0)"),
        ("(`e` IN (3))", "(`e` IN (0, 1)) OR (`e` = 2)"),
        ("(FALSE)", "(`e` IN (0, 1, 2)) OR (`e` = 3)"),
    ]
