"""The tables that the statements between two places name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_source.planning.tables.keys import named_between
from tests.unit.streaming_source.feeds.row_feed import small
from tests.unit.streaming_source.feeds.table_feed import A, T, TableFeed, U, alter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("ALTER TABLE d.t ADD x INT", {T}),
        ("CREATE OR REPLACE TABLE d.t (a INT)", {T}),
        ("DROP TABLE d.u", {U}),
        ("RENAME TABLE d.t TO d._t_old, d._t_new TO d.t", {T}),
        ("RENAME TABLE d.a TO d.u", {A, U}),
        ("ALTER TABLE d.z ADD x INT", set()),
        ("CREATE TEMPORARY TABLE d.t (a INT)", set()),
        ("ALTER TABLE !", {A, T, U}),
        ("INSERT INTO d.t VALUES (1)", set()),
    ],
)
def test_tables_that_statements_name(tmp_path: Path, sql: str, names: set[tuple[str, str]]) -> None:
    feed = TableFeed(tmp_path)
    feed.insert(*small(1, 1))
    alter(feed, "0-1-2", sql)
    feed.insert(*small(3, 3))
    assert named_between(feed.log, feed.log.oldest(), feed.head().location, {A, T, U}) == names
