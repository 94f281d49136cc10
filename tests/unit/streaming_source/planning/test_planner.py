"""Spark's calls in Spark's order, with JSON in between, over a real relay log: the traps of its contract one by one."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import DataLossError
from replica.protocol.gtid import GtidPosition
from streaming_source.offsets.offset import SourceOffset
from streaming_source.planning import planner as planning
from streaming_source.rows.partition import MappedRange
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed, plan

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = [f"0-1-{n}" for n in range(1, 11)]


def _again(offset: SourceOffset) -> SourceOffset:
    """What comes back from Spark."""
    return SourceOffset.parse(json.loads(json.dumps(offset.json())))


def _offset(gtid: str) -> SourceOffset:
    position = GtidPosition.parse(gtid)
    return SourceOffset(position, position)


def _bytes(partitions: list[Any]) -> bytes:
    return b"".join(bytes(r.data()) for p in partitions for r in p.ranges)


def test_the_initial_offset_stays_although_the_log_moves_on_and_makes_one_empty_batch(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, ["0-1-1"])
    planner = plan(feed)
    first = planner.initial_offset()
    feed.arrive("0-1-2")
    assert planner.initial_offset() == first
    anchor = planner.latest_offset(_again(first), bounded=True)
    assert anchor == first
    assert anchor.anchor
    assert planner.partitions(_again(first), _again(anchor)) == []
    after = planner.latest_offset(_again(anchor), bounded=True)
    assert str(after.position) == "0-1-2"
    assert not after.anchor


def test_a_crash_in_batch_0_replays_from_the_logged_anchor_not_from_a_new_start(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    planner = plan(feed)
    drifted = planner.initial_offset()
    assert str(drifted.position) == "0-1-10"
    logged = SourceOffset(GtidPosition.parse("0-1-4"), GtidPosition.parse("0-1-4"), anchor=True)
    assert planner.partitions(_again(drifted), _again(logged)) == []
    after = planner.latest_offset(_again(logged), bounded=True)
    assert str(after.position) == "0-1-10"
    assert planner.partitions(_again(logged), _again(after))


def test_no_news_is_the_same_offset_whatever_else_happened(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    planner = plan(feed)
    end = planner.latest_offset(_offset("0-1-3"), bounded=True)
    assert planner.latest_offset(_again(end), bounded=True) == end
    feed.primary.events.clear()
    assert planner.latest_offset(_again(end), bounded=False) == end


def test_offsets_only_grow_and_batches_join_without_gap_or_overlap(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    planner = plan(feed, max_bytes=700)
    offset, parts, seen = _offset(""), [], []
    while True:
        end = planner.latest_offset(_again(offset), bounded=True)
        if end == offset:
            break
        seen.append(int(str(end.position).rpartition("-")[2]))
        parts.append(_bytes(planner.partitions(_again(offset), _again(end))))
        offset = end
    assert seen == sorted(set(seen))
    assert seen[-1] == 10
    assert len(seen) > 3
    whole = planner.partitions(_offset(""), offset)
    assert b"".join(parts) == _bytes(whole)


def test_without_a_limit_a_batch_takes_all_there_is(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS), max_bytes=1)
    assert str(planner.latest_offset(_offset("0-1-1"), bounded=False).position) == "0-1-10"
    assert str(planner.latest_offset(_offset("0-1-1"), bounded=True).position) == "0-1-2"


@pytest.mark.parametrize(
    ("limits", "batches"),
    [({}, ["0-1-4"]), ({"max_bytes": 1}, ["0-1-3", "0-1-4"])],
)
def test_available_now_waits_for_its_target_and_does_not_pass_it_in_batches_that_are_full(
    tmp_path: Path, limits: dict[str, int], batches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:2])
    sleeping = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: feed.arriving())
    monkeypatch.setattr(planning, "time", sleeping)
    feed.target = GtidPosition.parse("0-1-4")
    waits = iter([(), ("0-1-3",), ("0-1-4", "0-1-5", "0-1-6")])
    feed.arriving = lambda: feed.arrive(*groups) if (groups := next(waits, ())) else None
    planner = plan(feed, **limits)
    planner.prepare_available_now()
    ends = []
    offset = _offset("0-1-2")
    while (end := planner.latest_offset(_again(offset), bounded=True)) != offset:
        offset = end
        ends.append(str(end.position))
    assert ends == batches


def test_available_now_ends_at_once_when_the_checkpoint_is_at_the_target(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    feed.target = GtidPosition.parse("0-1-8")
    planner = plan(feed)
    planner.prepare_available_now()
    assert planner.latest_offset(_offset("0-1-8"), bounded=True) == _offset("0-1-8")
    assert planner.latest_offset(_offset("0-1-9"), bounded=True) == _offset("0-1-9")


def test_available_now_stops_where_the_target_is_reached_though_no_place_is_exactly_it(tmp_path: Path) -> None:
    # The target is of a server that wrote 0-1-2 before 7-1-1; the log is of one that wrote it behind.
    feed = RelayFeed(tmp_path, ["0-1-1", "7-1-1", "7-1-2", "0-1-2", "0-1-3", "7-1-3"])
    feed.target = GtidPosition.parse("0-1-2,7-1-1")
    planner = plan(feed)
    planner.prepare_available_now()
    end = planner.latest_offset(_offset("0-1-1"), bounded=True)
    assert str(end.position) == "0-1-2,7-1-2"
    assert planner.latest_offset(_again(end), bounded=True) == end


def test_once_is_one_batch_to_the_primarys_position_whatever_the_limits(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:2])
    feed.target = GtidPosition.parse("0-1-4")
    waits = iter([(), ("0-1-3",), ("0-1-4", "0-1-5", "0-1-6")])
    feed.arriving = lambda: feed.arrive(*groups) if (groups := next(waits, ())) else None
    planner = plan(feed, max_bytes=1)
    assert str(planner.latest_offset(_offset("0-1-1"), bounded=False).position) == "0-1-4"
    assert planner.latest_offset(_offset("0-1-4"), bounded=False) == _offset("0-1-4")


def test_the_first_batch_of_once_reads_rows_and_says_where_it_began(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:3])
    planner = plan(feed)
    first = planner.initial_offset()
    feed.arrive(*GROUPS[3:6])
    end = planner.latest_offset(_again(first), bounded=False)
    assert (str(end.position), end.anchor) == ("0-1-6", False)
    rows = _bytes(planner.partitions(_again(first), _again(end)))
    assert len(rows) > 100
    # After a crash Spark names another start, where "latest" has moved to.
    feed.arrive(*GROUPS[6:])
    again = plan(feed)
    drifted = again.initial_offset()
    assert str(drifted.position) == "0-1-10"
    assert _bytes(again.partitions(_again(drifted), _again(end))) == rows
    following = again.latest_offset(_again(end), bounded=False)
    assert (str(following.position), following.begin) == ("0-1-10", None)


def test_once_with_nothing_to_read_leaves_the_anchor(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS[:3]))
    first = planner.initial_offset()
    assert planner.latest_offset(_again(first), bounded=False) == first


def test_a_cold_replay_starts_the_replica_and_waits_for_the_end(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:3])
    feed.started = False
    arrivals = iter([GROUPS[3:6], GROUPS[6:9]])
    feed.arriving = lambda: feed.arrive(*groups) if (groups := next(arrivals, None)) else None
    start, end = _offset("0-1-2"), _offset("0-1-8")
    partitions = plan(feed).partitions(_again(start), _again(end))
    assert feed.starts == [start]
    assert [r.bounds for p in partitions for r in p.ranges] == [None]
    again = plan(feed).partitions(_again(start), _again(end))
    assert _bytes(again) == _bytes(partitions)


def test_a_start_the_log_does_not_lead_through_is_an_error_not_a_gap(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS[4:], begin="0-1-4"))
    with pytest.raises(DataLossError, match="does not contain the position 0-1-2"):
        planner.latest_offset(_offset("0-1-2"), bounded=True)
    with pytest.raises(DataLossError, match="does not contain the position 0-1-2"):
        planner.partitions(_offset("0-1-2"), _offset("0-1-6"))


def test_an_end_before_its_start_is_refused(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS))
    with pytest.raises(DataLossError, match="ends before it starts"):
        planner.partitions(_offset("0-1-6"), _offset("0-1-3"))


def test_domains_interleaved_differently_are_bounded_by_sequence_number(tmp_path: Path) -> None:
    # The batch was planned as 0-1-2,7-1-1 .. 0-1-4,7-1-2; this server wrote domain 7 first.
    order = ["7-1-1", "7-1-2", "7-1-3", "0-1-1", "0-1-2", "0-1-3", "0-1-4", "0-1-5"]
    feed = RelayFeed(tmp_path, order)
    planner = plan(feed)
    start, end = _offset("7-1-1"), _offset("0-1-4,7-1-2")
    (part,) = planner.partitions(start, end)[0].ranges
    assert isinstance(part, MappedRange)
    assert part.bounds is not None
    assert part.bounds.lower is None
    assert part.bounds.upper == ((0, 4), (7, 2))
    # The next batch begins where this one did, without what it took.
    after = planner.latest_offset(_again(end), bounded=False)
    assert str(after.position) == "0-1-5,7-1-3"
    (rest,) = planner.partitions(_again(end), _again(after))[0].ranges
    assert rest.bounds is not None
    assert rest.bounds.lower == ((0, 4), (7, 2))
    assert rest.bounds.upper is None
    assert (rest.start, part.start) == (part.start, rest.start)


def test_commit_and_idleness_trim_whole_files_before_the_offset_and_no_more(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path)
    for number, group in enumerate(GROUPS[:6], 1):
        feed.primary.file = f"bin.{number:06d}"  # a new file of the primary is a new relay file
        feed.arrive(group)
    planner = plan(feed, max_bytes=1)
    files = sorted(p.name for p in tmp_path.glob("relay.00000?"))
    assert len(files) == 6
    first = planner.latest_offset(_offset("0-1-2"), bounded=True)
    planner.commit(_again(first))
    assert sorted(p.name for p in tmp_path.glob("relay.00000?")) == files[2:]
    last = planner.latest_offset(_again(first), bounded=False)
    assert planner.latest_offset(_again(last), bounded=True) == last
    assert sorted(p.name for p in tmp_path.glob("relay.00000?")) == files[5:]


def test_the_report_needs_no_server_and_tells_the_distance(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS[:4])
    planner = plan(feed, max_bytes=1)
    feed.started = False
    assert planner.report() is None
    feed.started = True
    end = planner.latest_offset(_offset("0-1-1"), bounded=True)
    behind = planner.report()
    assert behind is not None
    assert behind["gtid"] == "0-1-4"
    assert behind["bytesBehind"] == len(_bytes(planner.partitions(end, _offset("0-1-4"))))
    assert behind["secondsBehind"] == 0
    json.dumps(behind)


def test_the_report_of_a_restarted_query_knows_the_distance_before_its_first_batch(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS[:4]))
    assert planner.latest_offset(_offset("0-1-4"), bounded=True) == _offset("0-1-4")
    report = planner.report()
    assert report is not None
    assert (report["bytesBehind"], report["secondsBehind"]) == (0, 0)
    assert "rowsWaiting" not in report


def test_bytes_on_board_are_the_bytes_of_the_file(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS)
    by_path = plan(feed).partitions(_offset("0-1-1"), _offset("0-1-9"))
    inline = plan(feed, inline=True).partitions(_offset("0-1-1"), _offset("0-1-9"))
    assert _bytes(inline) == _bytes(by_path)
    assert [[r.file for r in p.ranges] for p in (*inline, *by_path)] == [["bin.000007"]] * 2


def test_close_closes_the_replica(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path)
    plan(feed).close()
    assert feed.closed
