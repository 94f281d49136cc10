"""XA transactions in the planner: whose batch their rows are in, what an offset remembers, what the log keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import DataLossError, RelayError
from replica.protocol.gtid import GtidPosition
from replica.rows.scan.xa import XaAction, find_xa_groups
from streaming_source.offsets.offset import SourceOffset
from streaming_source.ranges import cutting
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed, plan

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.planning.planner import ChangePlanner

GROUPS = [
    "0-1-1",
    "0-1-2 prepare x",
    "0-1-3",
    "0-1-4 prepare y",
    "0-1-5",
    "0-1-6 commit x",
    "0-1-7",
    "0-1-8 rollback y",
]
RESUMES = ["0-1-1", "0-1-1", "0-1-1", "0-1-1", "0-1-1", "0-1-3", "0-1-3", "0-1-8"]


def _offset(gtid: str, resume: str | None = None) -> SourceOffset:
    return SourceOffset(GtidPosition.parse(gtid), GtidPosition.parse(gtid if resume is None else resume))


def _again(offset: SourceOffset) -> SourceOffset:
    return SourceOffset.parse(json.loads(json.dumps(offset.json())))


def _carried(parts: list[Any]) -> list[tuple[str, bytes]]:
    """XA id and GTID sequence number of what the ranges carry."""
    found = []
    for part in parts:
        for data, checksum in part.carried_groups():
            (group,) = find_xa_groups(bytes(data), checksum=checksum)
            assert group.action is XaAction.PREPARE
            assert (group.start, group.end) == (0, len(data))
            found.append((str(group.gtid), group.xid.gtrid))
    return found


def _ranges(planner: ChangePlanner, start: SourceOffset, end: SourceOffset) -> list[Any]:
    return [part for partition in planner.partitions(_again(start), _again(end)) for part in partition.ranges]


def _batches(planner: ChangePlanner, offset: SourceOffset) -> list[tuple[SourceOffset, list[Any]]]:
    batches = []
    while (end := planner.latest_offset(_again(offset), bounded=True)) != offset:
        batches.append((end, _ranges(planner, offset, end)))
        offset = end
    return batches


@pytest.mark.parametrize("inline", [False, True])
def test_offsets_resume_before_the_oldest_open_group_and_commits_carry_theirs(tmp_path: Path, *, inline: bool) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS), max_bytes=1, inline=inline)
    batches = _batches(planner, _offset(""))
    assert [str(end.position) for end, _ in batches] == [f"0-1-{n}" for n in range(1, 9)]
    assert [str(end.resume) for end, _ in batches] == RESUMES
    assert [_carried(parts) for _, parts in batches] == [[], [], [], [], [], [("0-1-2", b"x")], [], []]


def test_a_commit_in_the_range_of_its_prepare_carries_nothing(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS), max_bytes=1 << 20)
    ((end, parts),) = _batches(planner, _offset(""))
    assert end.resume == end.position
    assert _carried(parts) == []


def test_partitions_of_one_batch_carry_to_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = RelayFeed(tmp_path)
    feed.arrive("0-1-1 prepare x", "0-1-2 prepare y", rows=100_000)
    feed.arrive("0-1-3", "0-1-4 commit y", "0-1-5", rows=100_000)
    feed.arrive("0-1-6 commit x")
    monkeypatch.setattr(cutting, "MOST_BYTES", 90_000)
    ((_, parts),) = _batches(plan(feed, max_bytes=1 << 30), _offset(""))
    assert len(parts) > 3
    assert sorted(_carried(parts)) == [("0-1-1", b"x"), ("0-1-2", b"y")]
    assert all(group.end <= part.start for part in parts for group in part.carried)


def test_the_log_is_kept_from_the_oldest_open_group(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path)
    for number, group in enumerate(GROUPS, 1):
        feed.primary.file = f"bin.{number:06d}"  # a new file of the primary is a new relay file
        feed.arrive(group)
    planner = plan(feed, max_bytes=1)
    offset, first = _offset(""), []
    while (end := planner.latest_offset(_again(offset), bounded=True)) != offset:
        planner.commit(_again(end))
        first.append(min(int(p.name[6:]) for p in tmp_path.glob("relay.00000?")))
        offset = end
    assert first == [1, 2, 2, 2, 2, 4, 4, 8]


@pytest.mark.parametrize("kept", [True, False])
def test_a_cold_start_between_prepare_and_commit(tmp_path: Path, *, kept: bool) -> None:
    # A replica that lost the log starts at `resume`, and the planner waits until it is where the query was.
    groups = GROUPS if kept else GROUPS[1:3]
    feed = RelayFeed(tmp_path, groups, begin="" if kept else "0-1-1")
    feed.started = False
    rest = iter([GROUPS[3:5], GROUPS[5:]])
    feed.arriving = lambda: feed.arrive(*(() if kept else next(rest, ())))
    planner = plan(feed, max_bytes=1)
    start, end = _offset("0-1-4", "0-1-1"), _offset("0-1-6", "0-1-3")
    parts = _ranges(planner, start, end)
    assert [str(offset.resume) for offset in feed.starts] == ["0-1-1"]
    assert _carried(parts) == [("0-1-2", b"x")]
    assert sum(len(part.data()) for part in parts) < 1000
    after = _batches(planner, end)
    assert [str(offset.resume) for offset, _ in after] == RESUMES[6:]


def test_a_commit_prepared_before_the_first_offset_is_refused_where_it_is_met(tmp_path: Path) -> None:
    planner = plan(RelayFeed(tmp_path, GROUPS[2:], begin="0-1-2"), max_bytes=1)
    read = []
    with pytest.raises(DataLossError, match=r"0-1-6 commits the XA transaction X'78',X'',1.*skipUnpreparedXa=true"):
        read.extend(_batches(planner, _offset("0-1-2")))
    offset, end = _offset("0-1-5", "0-1-3"), _offset("0-1-6", "0-1-3")
    with pytest.raises(DataLossError, match="0-1-6"):
        planner.partitions(offset, end)


def test_it_is_left_out_and_logged_where_that_is_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    feed = RelayFeed(tmp_path, GROUPS[2:], begin="0-1-2")
    planner = plan(feed, max_bytes=1, skip_unprepared=True)
    batches = _batches(planner, _offset("0-1-2"))
    assert str(batches[-1][0].position) == "0-1-8"
    assert all(part.lenient for _, parts in batches for part in parts)
    (record,) = caplog.records
    assert "0-1-6 commits the XA transaction X'78',X'',1" in record.message


def test_what_was_committed_between_resume_and_the_offset_needs_nothing(tmp_path: Path) -> None:
    # y was prepared before x, and committed before the offset; only x is open there.
    order = ["0-1-1 prepare y", "0-1-2 prepare x", "0-1-3 commit y", "0-1-4", "0-1-5 commit x"]
    feed = RelayFeed(tmp_path, order[1:], begin="0-1-1")
    planner = plan(feed, max_bytes=1)
    batches = _batches(planner, _offset("0-1-3", "0-1-1"))
    assert [_carried(parts) for _, parts in batches] == [[], [("0-1-2", b"x")]]


def test_domains_interleaved_differently_keep_their_open_groups(tmp_path: Path) -> None:
    # Planned as 7-1-1, 0-1-1 prepare x | 0-1-2 ; this server wrote domain 7 later.
    order = ["0-1-1 prepare x", "0-1-2", "7-1-1", "0-1-3 commit x", "7-1-2"]
    feed = RelayFeed(tmp_path, order)
    planner = plan(feed, max_bytes=1 << 20)
    start = _offset("0-1-1,7-1-1", "")
    ((end, parts),) = _batches(planner, start)
    assert str(end.position) == str(end.resume) == "0-1-3,7-1-2"
    (part,) = parts
    assert part.bounds is not None
    assert part.bounds.lower == ((0, 1), (7, 1))
    assert _carried(parts) == [], "the range begins before the prepared group"


def test_a_log_that_is_full_before_it_is_where_the_query_was(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path, GROUPS[1:3], begin="0-1-1")
    feed.full = True
    start, end = _offset("0-1-4", "0-1-1"), _offset("0-1-6", "0-1-3")
    with pytest.raises(RelayError, match=r"has not reached 0-1-4.*Raise relayMaxBytes"):
        plan(feed, max_bytes=1).partitions(start, end)


def test_a_log_that_an_open_transaction_keeps_full_is_an_error(tmp_path: Path) -> None:
    feed = RelayFeed(tmp_path)
    for number, group in enumerate(("0-1-1", "0-1-2 prepare x", "0-1-3"), 1):
        feed.primary.file = f"bin.{number:06d}"
        feed.arrive(group)
    planner = plan(feed, max_bytes=1 << 20)
    ((end, _),) = _batches(planner, _offset(""))
    feed.full = True
    with pytest.raises(RelayError, match=r"X'78',X'',1 has been prepared since relay.000002.*raise relayMaxBytes"):
        planner.latest_offset(_again(end), bounded=True)
