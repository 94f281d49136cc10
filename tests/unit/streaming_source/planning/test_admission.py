"""Batches keep all limits at once, wait for their minimum, and divide a transaction only where it is allowed to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import DataLossError
from replica.native.compiling import ahead
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.offsets.offset import GroupPart
from streaming_source.planning import admission
from streaming_source.planning import planner as planning
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed, plan
from tests.unit.streaming_source.feeds.row_feed import (
    TABLES,
    Group,
    RowFeed,
    again,
    batches,
    delivered,
    ends,
    offset,
    sizes,
    small,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that `maxTriggerDelay` is measured with; a test moves them."""
    now = [1000.0]
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_cut_takes_whole_groups_up_to_the_limit_and_at_least_one(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path)
    feed.arrive(*(f"0-1-{n}" for n in range(1, 21)))
    one = feed.log.locate(GtidPosition.parse("0-1-1"))
    two = feed.log.locate(GtidPosition.parse("0-1-2"))
    assert one is not None
    assert two is not None
    for limit, expected in ((1, 1), (two.offset - one.offset, 1), (1 << 30, 20)):
        end = plan(feed, max_bytes=limit).latest_offset(offset(""), bounded=True)
        assert str(end.position) == f"0-1-{expected}"


def test_batches_are_small_while_kernels_are_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = RelayFeed(tmp_path)
    feed.arrive(*(f"0-1-{n}" for n in range(1, 1001)))
    one, two = (feed.log.locate(GtidPosition.parse(f"0-1-{n}")) for n in (1, 2))
    assert one is not None
    assert two is not None
    monkeypatch.setattr(ahead.Compiling, "interprets", True)
    end = plan(feed, max_bytes=1 << 30).latest_offset(offset(""), bounded=True)
    (reached,) = end.position.gtids
    assert reached.seq_no == pytest.approx(ahead.INTERPRETED_BYTES / (two.offset - one.offset), abs=2)
    monkeypatch.setattr(ahead.Compiling, "interprets", False)
    assert str(plan(feed, max_bytes=1 << 30).latest_offset(end, bounded=True).position) == "0-1-1000"


def test_rows_count_where_they_are_of_the_selected_tables_and_transactions_too(tmp_path: Path) -> None:
    groups = [*small(1, 3, rows=2), Group("0-1-4", (("other", 9),)), Group("0-1-5", (("t", 1), ("other", 5)))]
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*groups)
    assert ends(batches(plan(feed, tables=TABLES, max_rows=4), offset(""))) == ["0-1-2", "0-1-5"]
    assert ends(batches(plan(feed, tables=TABLES, max_rows=5), offset(""))) == ["0-1-2", "0-1-5"]
    assert ends(batches(plan(feed, tables=TABLES, max_rows=6), offset(""))) == ["0-1-4", "0-1-5"]
    assert ends(batches(plan(feed, tables=TABLES, max_transactions=1), offset(""))) == [
        "0-1-1",
        "0-1-2",
        "0-1-4",
        "0-1-5",
    ]
    assert ends(batches(plan(feed, tables=TABLES, max_transactions=3, max_rows=4), offset(""))) == ["0-1-2", "0-1-5"]
    assert ends(batches(plan(feed, tables=TABLES, max_transactions=1, max_bytes=1), offset(""))) == [
        f"0-1-{n}" for n in range(1, 6)
    ]


def test_a_large_transaction_goes_whole_unless_it_may_be_divided(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 2), Group("0-1-3", (("t", 4), ("t", 4))), *small(4, 5))
    whole = batches(plan(feed, tables=TABLES, max_rows=3), offset(""))
    assert sizes(whole) == [2, 8, 2]
    pieces = batches(plan(feed, tables=TABLES, max_rows=3, split=True), offset(""))
    assert sizes(pieces) == [2, 3, 3, 2, 2]
    assert [end.part and (str(end.part.gtid), end.part.rows) for end, _ in pieces] == [
        None,
        ("0-1-3", 3),
        ("0-1-3", 6),
        None,
        None,
    ]
    assert [row for _, rows in pieces for row in rows] == [row for _, rows in whole for row in rows]
    assert [row.is_last for _, rows in pieces for row in rows] == [True] * 2 + [False] * 7 + [True] * 3


def test_pieces_of_so_many_bytes_are_read_as_such(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 1), Group("0-1-2", (("t", 1000), ("other", 1000)) * 60), *small(3, 3))
    planner, start, found = plan(feed, tables=TABLES, max_bytes=100_000, split=True), offset(""), []
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        partitions = planner.partitions(again(start), again(end))
        assert sum(part.size for partition in partitions for part in partition.ranges) < 100_000 + 2 * (8 << 10)
        found.append(delivered(partitions))
        start = end
    assert [len(rows) for rows in found[:1] + found[-1:]] == [1, 1]
    assert 6 <= len(found[1:-1]) <= 9
    assert [row.ordinal for rows in found[1:-1] for row in rows] == [n for n in range(120_000) if n // 1000 % 2 == 0]
    assert [row.ordinal for rows in found[1:-1] for row in rows if row.is_last] == [118_999]


def test_a_transaction_that_was_begun_is_ended_whatever_limits_and_trigger_come_next(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(Group("0-1-1", (("t", 8),)), *small(2, 2))
    (start, first), *_ = batches(plan(feed, tables=TABLES, max_rows=3, split=True), offset(""))
    for limits, bounded, expected in (
        ({"max_rows": 3}, True, [5, 1]),
        ({"max_rows": 4, "split": True}, True, [4, 1, 1]),
        ({"min_rows": 99, "max_delay_s": 3600.0}, True, [5, 1]),
        ({"max_rows": 3, "split": True}, False, [6]),
    ):
        planner, at, found = plan(feed, tables=TABLES, **limits), start, []
        while (end := planner.latest_offset(again(at), bounded=bounded)) != at:
            found.append(delivered(planner.partitions(again(at), again(end))))
            at = end
            feed.full = True  # so that the last row does not wait for others
        feed.full = False
        assert [len(rows) for rows in found] == expected
        assert [row.value for rows in (first, *found) for row in rows] == list(range(9))


def test_a_divided_transaction_goes_on_where_it_was_on_another_server(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path / "one")
    feed.arrive_rows(*small(1, 2), Group("0-1-3", (("t", 6), ("t", 6))))
    limits = {"tables": TABLES, "max_rows": 5, "split": True}
    (start, _), (end, rows), (_, rest) = batches(plan(feed, **limits), offset("0-1-2"))
    assert [len(rows), len(rest)] == [5, 2]
    # The same rows in other events, and a transaction of another domain before them.
    other = RowFeed(tmp_path / "two", begin="0-1-2")
    other.value = 2
    other.arrive_rows(Group("7-2-1"), Group("0-1-3", (("t", 1), ("t", 10), ("t", 1))))
    assert delivered(plan(other, **limits).partitions(again(start), again(end))) == rows
    after = batches(plan(other, **limits), end)
    assert [(str(end.position), end.part is None) for end, _ in after] == [
        ("0-1-2,7-2-1", False),
        ("0-1-3,7-2-1", True),
    ]
    assert [rows for _, rows in after] == [[], rest]


def test_what_was_lost_in_a_failover_is_not_mixed_with_what_came_instead(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 1), Group("0-2-2", (("t", 6),)))
    start = replace(offset("0-1-1"), part=GroupPart(Gtid.parse("0-1-2"), 4))
    with pytest.raises(DataLossError, match=r"4 row changes of the transaction 0-1-2 .* has 0-2-2 in its place"):
        plan(feed, tables=TABLES, max_rows=2, split=True).latest_offset(start, bounded=True)


def test_xa_transactions_count_and_are_divided_at_their_commit(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(
        Group("0-1-1 prepare x", (("t", 7),)),
        Group("0-1-2 prepare y", (("t", 7),)),
        *small(3, 3),
        Group("0-1-4 commit x"),
        Group("0-1-5 rollback y"),
        *small(6, 6),
    )
    found = batches(plan(feed, tables=TABLES, max_rows=3, split=True), offset(""))
    assert sizes(found) == [1, 3, 3, 1, 1]
    assert [row.gtid for _, rows in found for row in rows] == ["0-1-3"] + ["0-1-4"] * 7 + ["0-1-6"]
    assert [row.ordinal for _, rows in found for row in rows] == [0, *range(7), 0]
    for (start, _), (end, rows) in pairwise(found):
        assert delivered(plan(feed, tables=TABLES).partitions(again(start), again(end))) == rows


def test_a_batch_waits_for_its_minimum_and_goes_when_it_is_there_or_a_limit_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(planning, "GATHER_S", 0.0)
    feed = RowFeed(tmp_path)
    planner = plan(feed, tables=TABLES, min_rows=5, max_rows=8, max_bytes=2000, max_delay_s=3600.0)
    start = planner.initial_offset()
    assert planner.latest_offset(again(start), bounded=True) == start
    for number in range(1, 5):
        feed.arrive_rows(*small(number, number))
        clock[0] += 5
        assert planner.latest_offset(again(start), bounded=True) == start
        clock[0] += 5
        report = planner.report()
        assert report is not None
        assert report["rowsWaiting"] == number
        assert report["waitsAtMostSeconds"] == 3600 - 10 * number
        assert report["bytesBehind"] > 0
    feed.arrive_rows(*small(5, 5))
    end = planner.latest_offset(again(start), bounded=True)
    assert str(end.position) == "0-1-5"
    assert len(delivered(planner.partitions(again(start), again(end)))) == 5
    # No row of the selected tables, but the bytes of a batch.
    feed.arrive_rows(*(Group(f"0-1-{n}", (("other", 9),)) for n in range(6, 20)))
    full = planner.latest_offset(again(end), bounded=True)
    assert 6 < full.position.gtids[0].seq_no < 19


def test_a_minimum_is_not_waited_for_after_the_delay_a_restart_or_with_a_full_log(
    tmp_path: Path, clock: list[float]
) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 1))
    restarted = plan(feed, tables=TABLES, min_rows=5, max_delay_s=3600.0)
    end = restarted.latest_offset(offset(""), bounded=True)
    assert str(end.position) == "0-1-1"
    feed.arrive_rows(*small(2, 2))
    assert restarted.latest_offset(again(end), bounded=True) == end
    feed.full = True
    assert str(restarted.latest_offset(again(end), bounded=True).position) == "0-1-2"
    feed.full = False
    late = plan(feed, tables=TABLES, min_rows=5, max_delay_s=60.0)
    first = late.latest_offset(offset("0-1-1"), bounded=True)
    feed.arrive_rows(*small(3, 3))
    clock[0] += 59
    assert late.latest_offset(again(first), bounded=True) == first
    clock[0] += 2
    assert str(late.latest_offset(again(first), bounded=True).position) == "0-1-3"


def test_rows_taken_do_not_wait_and_pieces_bring_the_end_nearer(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    feed.arrive_rows(*small(1, 3), Group("0-1-4", (("t", 4000),)), *small(5, 6))
    planner = plan(feed, tables=TABLES, min_rows=2, max_rows=1500, split=True, max_delay_s=3600.0)
    start, seen = offset(""), []
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        report = planner.report()
        assert report is not None
        seen.append((report["rowsWaiting"], report["bytesBehind"]))
        start = end
    assert [rows for rows, _ in seen] == [4002, 4002, 4002, 2, 0][: len(seen)]
    assert [size for _, size in seen] == sorted({size for _, size in seen}, reverse=True)
    assert seen[-1] == (0, 0)


def test_available_now_and_once_do_not_wait_for_a_minimum(tmp_path: Path) -> None:
    feed = RowFeed(tmp_path)
    planner = plan(feed, tables=TABLES, min_rows=50, max_delay_s=3600.0)
    start = planner.initial_offset()
    feed.arrive_rows(*small(1, 3))
    planner.prepare_available_now()
    assert planner.latest_offset(again(start), bounded=True) == start  # the anchor
    assert ends(batches(planner, start)) == ["0-1-3"]
    once = plan(feed, tables=TABLES, min_rows=50, max_rows=1, max_delay_s=3600.0)
    assert str(once.latest_offset(offset(""), bounded=False).position) == "0-1-3"


_events = st.lists(st.tuples(st.sampled_from(["t", "other"]), st.integers(1, 5)), max_size=4).map(tuple)


@st.composite
def _histories(draw: st.DrawFn) -> list[Group]:
    """Transactions of two domains, some of them XA."""
    numbers, opened, groups = {0: 0, 7: 0}, [], []
    for index in range(draw(st.integers(1, 12))):
        domain = draw(st.sampled_from([0, 7]))
        numbers[domain] += 1
        gtid = f"{domain}-1-{numbers[domain]}"
        kind = draw(st.sampled_from(["rows", "rows", "prepare", "end"]))
        if kind == "prepare":
            opened.append(f"x{index}")
            groups.append(Group(f"{gtid} prepare {opened[-1]}", draw(_events)))
        elif kind == "end" and opened:
            name = opened.pop(draw(st.integers(0, len(opened) - 1)))
            groups.append(Group(f"{gtid} {draw(st.sampled_from(['commit', 'rollback']))} {name}"))
        else:
            groups.append(Group(gtid, draw(_events)))
    return groups


@settings(max_examples=60)
@given(
    _histories(),
    st.none() | st.integers(1, 8),
    st.none() | st.integers(1, 3),
    st.sampled_from([1, 200, 500, 1 << 20]),
    st.booleans(),
    st.booleans(),
)
def test_any_limits_give_every_row_once_in_batches_within_them(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[Group],
    max_rows: int | None,
    max_transactions: int | None,
    max_bytes: int,
    split: bool,  # noqa: FBT001
    restarts: bool,  # noqa: FBT001
) -> None:
    feed = RowFeed(tmp_path_factory.mktemp("relay"))
    feed.arrive_rows(*groups)
    limits = {"max_rows": max_rows, "max_transactions": max_transactions, "max_bytes": max_bytes, "split": split}
    everything = plan(feed, tables=TABLES).latest_offset(offset(""), bounded=False)
    expected = delivered(plan(feed, tables=TABLES).partitions(offset(""), everything))
    planner, start, found = plan(feed, tables=TABLES, **limits), offset(""), []
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        rows = delivered(planner.partitions(again(start), again(end)))
        found += rows
        transactions = {row.gtid for row in rows}
        assert max_transactions is None or len(transactions) <= max_transactions
        assert max_rows is None or len(rows) <= max_rows or (len(transactions) == 1 and not split)
        assert split or end.part is None
        start = end
        if restarts:
            planner = plan(feed, tables=TABLES, **limits)
    assert start.position == everything.position
    assert found == expected
