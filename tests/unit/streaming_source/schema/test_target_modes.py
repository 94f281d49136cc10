"""Modes of targets: each says what it holds, and the log has the columns of the flat shape."""

from __future__ import annotations

from typing import get_args

from streaming_source.schema.row_schema import FLAT
from streaming_source.schema.target_modes import APPEND_LOG, MEANINGS, OWN_COLUMNS, live_rows
from streaming_source.transforms.table_rules import Mode


def test_each_mode_of_a_rule_is_described() -> None:
    assert set(get_args(Mode)) == set(OWN_COLUMNS) == set(MEANINGS)


def test_rows_of_now() -> None:
    found = {mode: live_rows(mode) for mode in MEANINGS}
    assert found == {"current": "true", "soft_delete": "NOT _deleted", "history": "_current", "append_log": None}


def test_the_log_has_the_columns_of_the_flat_shape() -> None:
    assert [column.name for column in OWN_COLUMNS[APPEND_LOG]] == [column.name for column in FLAT]
