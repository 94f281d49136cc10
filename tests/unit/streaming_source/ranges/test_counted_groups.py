"""Rows ahead are counted once each, DDL where it makes rows, and only so many transactions are remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from replica.protocol.gtid import GtidPosition
from replica.rows.decode import decode
from streaming_source.ranges import counted_groups
from tests.unit.streaming_source.feeds.relay_feed import plan
from tests.unit.streaming_source.feeds.row_feed import TABLES, Group, RowFeed, batches, ends, offset, sizes, small

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_ddl_counts_where_it_makes_rows(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 1), Group("0-1-2 alters"), *small(3, 3))
    assert ends(batches(plan(feed, tables=TABLES, max_rows=1), offset(""))) == ["0-1-2", "0-1-3"]
    with_ddl = replace(TABLES, include_ddl=True)
    assert ends(batches(plan(feed, tables=with_ddl, max_rows=1), offset(""))) == ["0-1-1", "0-1-2", "0-1-3"]


def sizes_given_to(monkeypatch: pytest.MonkeyPatch, function: str) -> list[int]:
    """Keep the number of bytes of each call of one of the decoder's functions."""
    given: list[int] = []
    count = getattr(decode, function)

    def spy(data: memoryview, *args: Any, **options: Any) -> Any:
        given.append(len(data))
        return count(data, *args, **options)

    monkeypatch.setattr(decode, function, spy)
    return given


def test_bytes_are_counted_once_however_small_the_batches_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 300))
    counted = sizes_given_to(monkeypatch, "count_rows")
    found = batches(plan(feed, tables=TABLES, max_rows=7), offset(""))
    assert sizes(found) == [7] * 42 + [6]
    first, last = feed.log.locate(GtidPosition()), feed.head().location
    assert first is not None
    assert sum(counted) == sum(r.end - r.start for r in feed.log.ranges(first, last, 1 << 30))


def test_a_large_transaction_is_counted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_groups, "COUNT_BYTES", 1)
    monkeypatch.setattr(counted_groups, "LARGE_BYTES", 200_000)
    walked = sizes_given_to(monkeypatch, "count_group")
    feed = RowFeed(tmp_path)
    large = Group("0-1-4", (("t", 30_000), ("other", 30_000), ("t", 20_000)))
    feed.arrive_rows(*small(1, 3), large, *small(5, 9))
    found = batches(plan(feed, tables=TABLES, max_rows=4), offset(""))
    assert sizes(found) == [3, 50_000, 4, 1]
    assert [size > counted_groups.LARGE_BYTES for size in walked] == [True]


def test_more_transactions_than_are_remembered_are_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_groups, "MAX_GROUPS", 4)
    monkeypatch.setattr(counted_groups, "COUNT_BYTES", 1)
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 1500))
    found = batches(plan(feed, tables=TABLES, max_rows=1000), offset(""))
    assert sum(sizes(found)) == 1500
    assert 4 <= max(sizes(found)) < 1000
