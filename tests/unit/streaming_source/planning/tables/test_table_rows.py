"""Tables first, then changes: every batch leaves a strict sink as the tables are at its end, whatever is restarted."""

from __future__ import annotations

import json
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, DataLossError
from replica.snapshot.frontier import NOTHING, Frontier
from streaming_source.offsets.reading_requests import RequestedTables, RequestFolder, ResnapshotRequest
from streaming_source.options.reading_options import ResnapshotOption
from streaming_source.planning.tables import table_rows
from streaming_source.ranges.places import OffsetPlace
from streaming_source.rows.read_plan import FIRST_ORDINAL
from tests.unit.streaming_source.feeds.relay_feed import plan
from tests.unit.streaming_source.feeds.row_feed import Group, again, offset, small
from tests.unit.streaming_source.feeds.table_feed import (
    TABLES,
    FakeTables,
    Sink,
    T,
    TableFeed,
    U,
    read,
    reading_planner,
)

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.planning.planner import ChangePlanner


@pytest.fixture
def feed(tmp_path: Path) -> TableFeed:
    feed = TableFeed(tmp_path)
    feed.insert(*small(1, 3, rows=2))
    return feed


def run(planner: ChangePlanner, feed: TableFeed, start: SourceOffset, sink: Sink) -> SourceOffset:
    """Batches until nothing is new; each leaves the sink as the tables are at its end."""
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        sink.apply(planner.partitions(again(start), again(end)))
        sink.check(feed, end)
        start = end
    return start


def test_the_rows_come_first_and_then_the_changes_and_the_offset_is_a_plain_one_again(feed: TableFeed) -> None:
    reading, sink = FakeTables(feed), Sink()
    planner = reading_planner(feed, reading)
    first = planner.initial_offset()
    assert first.snapshot == Frontier()
    anchor = planner.latest_offset(again(first), bounded=True)
    assert anchor == first
    assert planner.partitions(again(first), again(anchor)) == []
    assert reading.started == [], "nothing is read before the anchor is in the log"
    end = run(planner, feed, anchor, sink)
    assert end.snapshot is not None
    assert end.snapshot.finished
    assert sink.reads == end.snapshot.rows == len(sink.rows[T]) + len(sink.rows[U])
    planner.commit(again(end))
    assert reading.closed
    feed.insert(*small(4, 5))
    last = run(planner, feed, end, sink)
    assert (str(last.position), last.snapshot, last.json()["v"]) == ("0-1-5", None, 1)
    assert last.last is None or last.last.gtid.seq_no == 5


def test_a_crash_in_batch_0_does_not_end_a_query_that_reads_what_is_there(feed: TableFeed) -> None:
    """The server is idle, so that the start is still the same: an answer without progress would be the last one."""
    sink = Sink()
    planner = reading_planner(feed, FakeTables(feed))
    planner.prepare_available_now()
    logged = planner.initial_offset()
    assert planner.partitions(again(logged), again(logged)) == []
    end = run(planner, feed, logged, sink)
    assert end.snapshot is not None
    assert end.snapshot.finished
    assert sink.reads == len(sink.rows[T]) + len(sink.rows[U])


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_restarted_and_whatever_comes_meanwhile_no_row_is_lost_or_doubled(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    feed = TableFeed(tmp_path)
    feed.insert(*small(1, 2, rows=3))
    number, sink = 3, Sink()

    def started() -> ChangePlanner:
        return reading_planner(feed, FakeTables(feed, chunk=rng.choice([1, 5, 9])), max_rows=rng.choice([None, 4, 20]))

    planner = started()
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    assert start.anchor
    while start.snapshot is not None:
        if rng.random() < 0.7:
            feed.insert(*small(number, number + 1, rows=rng.randint(1, 3)))
            number += 2
        end = planner.latest_offset(again(start), bounded=True)
        if rng.random() < 0.5:
            planner = started()  # killed behind the offset log: the spool is lost with it
        partitions = planner.partitions(again(start), again(end))
        twice = planner.partitions(again(start), again(end))
        assert read(partitions) == read(twice)
        if rng.random() < 0.3:
            planner = started()
            assert read(planner.partitions(again(start), again(end))) == read(partitions), "a replay is the same"
        sink.apply(partitions)
        sink.check(feed, end)
        if rng.random() < 0.6:
            planner.commit(again(end))
        if rng.random() < 0.2:
            planner = started()
        start = end
    sink.check(feed, start)


def test_a_row_that_was_read_says_so_and_has_an_identity_of_its_own(feed: TableFeed) -> None:
    planner = reading_planner(feed, FakeTables(feed, chunk=100))
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    feed.insert(Group("0-1-4", (("t", 1),)))
    feed.insert(Group("0-1-5", (("other", 1),)))
    ends = [start]
    while ends[-1].snapshot is not None and not ends[-1].snapshot.rows:
        ends.append(planner.latest_offset(again(ends[-1]), bounded=True))
    start, end = ends[-2:]
    assert end.last is not None
    partitions = planner.partitions(again(start), again(end))
    envelope, flat = read(partitions), read(partitions, "flat")
    assert len(envelope) == end.snapshot.rows if end.snapshot else 0
    for index, (row, other) in enumerate(zip(envelope, flat, strict=True)):
        assert (row["op"], other["_change_type"]) == ("read", "insert")
        assert row["before"] is None
        transaction = row["transaction"]
        assert (transaction["gtid"], transaction["ordinal"]) == (str(end.last.gtid), FIRST_ORDINAL + index)
        assert (transaction["xid"], transaction["is_last"]) == (None, False)
        assert transaction["commit_timestamp"].timestamp() == 1_700_000_000
        source = row["source"]
        assert [source[name] for name in ("file", "position", "thread_id", "sql")] == [None] * 4
        assert other["_sequence"] == f"{transaction['sequence_number']:020}.{transaction['ordinal']:012}"
        assert row["history"] is None


def test_a_limit_of_rows_is_shared_by_changes_and_tables(feed: TableFeed) -> None:
    planner = reading_planner(feed, max_rows=6)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    feed.insert(*small(4, 30))
    sizes = []
    while start.snapshot is not None and not start.snapshot.finished:
        end = planner.latest_offset(again(start), bounded=True)
        sizes.append(len(read(planner.partitions(again(start), again(end)))))
        start = end
    assert max(sizes) == 6


def test_available_now_reads_all_tables_and_waits_for_them(feed: TableFeed) -> None:
    reading, sink = FakeTables(feed), Sink()
    reading.is_ready = False
    waits = iter(range(5))
    feed.arriving = lambda: setattr(reading, "is_ready", next(waits, None) is None)
    planner = reading_planner(feed, reading)
    planner.prepare_available_now()
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    feed.target = None
    original = reading.advance
    asked = []

    def advance(*given: object) -> object:
        asked.append(given)
        reading.is_ready = len(asked) > 3
        return original(*given)  # type: ignore[arg-type]

    reading.advance = advance  # type: ignore[method-assign, assignment]
    end = run(planner, feed, start, sink)
    assert end.snapshot is not None
    assert end.snapshot.finished


def test_once_is_one_batch_with_all_tables(feed: TableFeed) -> None:
    sink = Sink()
    planner = reading_planner(feed, max_rows=2)
    first = planner.initial_offset()
    feed.insert(*small(4, 6))
    end = planner.latest_offset(again(first), bounded=False)
    assert end.snapshot is not None
    assert end.snapshot.finished
    assert end.begin is not None
    assert end.begin.snapshot == Frontier()
    cold = reading_planner(feed)
    drifted = cold.initial_offset()
    partitions = cold.partitions(again(drifted), again(end))
    assert read(partitions) == read(planner.partitions(again(first), again(end)))
    sink.apply(partitions)
    sink.check(feed, end)


def test_rows_travel_on_board_where_tasks_cannot_open_files(feed: TableFeed) -> None:
    planner = reading_planner(feed, FakeTables(feed, chunk=100), inline=True)
    start, sink = planner.latest_offset(again(planner.initial_offset()), bounded=True), Sink()
    end = planner.latest_offset(again(start), bounded=True)
    partitions = planner.partitions(again(start), again(end))
    for path in feed.spool.glob("*") if feed.spool.exists() else ():
        path.unlink()
    sink.apply(partitions)
    sink.check(feed, end)


def test_a_query_that_is_past_its_tables_never_reads_them(feed: TableFeed) -> None:
    reading = FakeTables(feed)
    planner = reading_planner(feed, reading)
    start = offset("0-1-1")
    end = planner.latest_offset(again(start), bounded=True)
    assert planner.partitions(again(start), again(end))
    planner.commit(again(end))
    assert (reading.started, reading.limits) == ([], [])
    assert "snapshotProgress" not in (planner.report() or {})


def test_a_checkpoint_goes_on_reading_whatever_the_option_says(feed: TableFeed) -> None:
    planner = reading_planner(feed)
    anchor = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    sink = Sink()
    end = run(reading_planner(feed, initial=False), feed, again(anchor), sink)
    assert end.snapshot is not None
    assert end.snapshot.finished
    assert reading_planner(feed, initial=False).initial_offset().snapshot is None


@pytest.mark.parametrize("once", [False, True])
def test_tables_that_come_in_later_are_read_and_their_changes_before_are_not_delivered(
    feed: TableFeed, *, once: bool
) -> None:
    sink = Sink()
    planner = reading_planner(feed, patterns=("d.u",))
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    while (end := planner.latest_offset(again(start), bounded=True)) != start:
        sink.apply(planner.partitions(again(start), again(end)))
        start = end
    assert sink.rows[T] == set()
    assert len(sink.rows[U]) == 3

    feed.insert(*small(4, 6))
    planner = reading_planner(feed, FakeTables(feed, chunk=9))
    end = planner.latest_offset(again(start), bounded=not once)
    assert end.begin is not None
    assert end.begin.snapshot is not None
    assert end.begin.snapshot.reached(T) == NOTHING
    for started in (planner, reading_planner(feed)):
        partitions = started.partitions(again(start), again(end))
        assert read(partitions) == read(planner.partitions(again(start), again(end)))
    sink.apply(partitions)
    sink.check(feed, end)
    assert (end.snapshot or Frontier()).finished is once
    feed.insert(*small(7, 8))
    last = run(planner, feed, end, sink)
    assert sink.reads == (last.snapshot.rows if last.snapshot and not once else sink.reads)
    assert len(sink.rows[T]) > 30
    quiet = reading_planner(feed).latest_offset(again(last), bounded=True)
    assert quiet == last, "what was read is not read again"


def test_a_table_is_read_again_once_for_each_word(feed: TableFeed) -> None:
    sink, changes = Sink(), reading_planner(feed, initial=False)
    start = changes.latest_offset(again(changes.initial_offset()), bounded=True)
    asked = ResnapshotOption(("d.u",), "monday")
    planner = reading_planner(feed, initial=False, again=asked)
    end = planner.latest_offset(again(start), bounded=True)
    assert (end.again, end.snapshot and end.snapshot.finished) == ("monday", True)
    sink.apply(planner.partitions(again(start), again(end)))
    assert sink.rows[U] == {1, 2, 3}
    for word, rows in (("monday", 0), ("tuesday", 3)):
        planner = reading_planner(feed, initial=False, again=ResnapshotOption(("d.u",), word))
        following = planner.latest_offset(again(end), bounded=True)
        found = read(planner.partitions(again(end), again(following))) if following != end else []
        assert [row["op"] for row in found] == ["read"] * rows
        assert not {row["transaction"]["ordinal"] for row in found} & {FIRST_ORDINAL + n for n in range(3)}
        end = following
    with pytest.raises(ConfigError, match=r"d\.x@w matches none"):
        reading_planner(feed, again=ResnapshotOption(("d.x",), "w")).latest_offset(again(end), bounded=True)


def test_a_running_query_reads_a_table_again_when_a_request_asks_for_it(feed: TableFeed, tmp_path: Path) -> None:
    folder, reading, sink = RequestFolder(tmp_path / "requests"), FakeTables(feed), Sink()
    planner = reading_planner(feed, reading, requests=folder)
    anchor = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    end = run(planner, feed, anchor, sink)
    assert end.snapshot is not None
    assert end.snapshot.finished
    folder.put(ResnapshotRequest("first", (("d", "no"), T)))
    folder.put(ResnapshotRequest("later", (U,), time.time() + 1000))
    feed.insert(*small(4, 5))
    begun = planner.latest_offset(again(end), bounded=True)
    assert begun.asked == RequestedTables(("first",), (("d", "no"), T))
    sink.rows[T].clear()
    sink.apply(planner.partitions(again(end), again(begun)))
    sink.check(feed, begun)
    reading.closed, reading.released = False, []
    planner.commit(again(end))  # Spark tells it late: the files of the new reading have to stay
    assert (reading.closed, reading.released) == (False, [])
    assert len(folder.waiting()) == 2, "the request stays until the offset is in Spark's log"
    cold = reading_planner(feed, requests=folder)
    assert read(cold.partitions(again(end), again(begun))) == read(planner.partitions(again(end), again(begun)))
    feed.insert(*small(6, 7))
    last = run(cold, feed, begun, sink)
    assert (last.snapshot and last.snapshot.finished, last.asked) == (True, None)
    assert [request.request_id for request in folder.waiting()] == ["later"]
    sink.check(feed, last)


def test_a_request_of_a_crash_is_taken_once_and_one_that_comes_while_tables_are_read_is_too(
    feed: TableFeed, tmp_path: Path
) -> None:
    folder, sink = RequestFolder(tmp_path / "requests"), Sink()
    planner = reading_planner(feed, FakeTables(feed, chunk=2), requests=folder)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    while not (start.snapshot and start.snapshot.open):
        end = planner.latest_offset(again(start), bounded=True)
        sink.apply(planner.partitions(again(start), again(end)))
        start = end
    folder.put(ResnapshotRequest("now", (T, U)))
    lost = planner.latest_offset(again(start), bounded=True)
    assert lost.asked == RequestedTables(("now",), (T, U))
    planner = reading_planner(feed, FakeTables(feed, chunk=2), requests=folder)  # Spark died before it logged that
    begun = planner.latest_offset(again(start), bounded=True)
    assert begun == lost
    folder.put(ResnapshotRequest("now", (T, U)))  # the program came again too, and asks as before
    sink.rows[T].clear()
    sink.rows[U].clear()
    sink.apply(planner.partitions(again(start), again(begun)))
    sink.check(feed, begun)
    last = run(planner, feed, begun, sink)
    assert last.asked is None
    assert folder.waiting() == []


def first_rows(planner: ChangePlanner) -> tuple[SourceOffset, SourceOffset]:
    """Return the beginning and the end of the first batch with snapshot rows; the first table is empty."""
    anchor = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    start = planner.latest_offset(again(anchor), bounded=True)
    return start, planner.latest_offset(again(start), bounded=True)


def test_rows_that_are_lost_are_left_out_with_the_reason_where_a_program_re_snapshots_them(
    feed: TableFeed, tmp_path: Path
) -> None:
    reading = FakeTables(feed, chunk=100)
    planner = reading_planner(feed, reading, requests=RequestFolder(tmp_path / "requests"))
    start, end = first_rows(planner)
    whole = planner.partitions(again(start), again(end))
    reading.lost_tables = {T: "it was altered"}
    found = planner.partitions(again(start), again(end))
    assert [part.lost for part in found if part.lost] == [((T, "it was altered"),)]
    assert sum(part.size for part in found) < sum(part.size for part in whole)
    assert not any(part.lost for part in whole)


@pytest.mark.parametrize("asked", [False, True])
def test_rows_of_a_position_that_this_server_never_had(
    feed: TableFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    requests = RequestFolder(tmp_path / "requests") if asked else None
    planner = reading_planner(feed, FakeTables(feed, chunk=3), requests=requests)
    start, end = first_rows(planner)
    monkeypatch.setattr(OffsetPlace, "exact", property(lambda _: False))
    if asked:
        (part,) = planner.partitions(again(start), again(end))
        assert [name for name, _ in part.lost] == [T]
        assert part.ranges == ()
        return
    with pytest.raises(DataLossError, match="never had this state"):
        planner.partitions(again(start), again(end))


def test_what_is_no_request_is_named(feed: TableFeed, tmp_path: Path) -> None:
    folder = RequestFolder(tmp_path)
    (tmp_path / "a.json").write_text("[]", encoding="utf-8")
    planner = reading_planner(feed, initial=False, requests=folder)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    with pytest.raises(ConfigError, match=r"a\.json is not a request for a re-snapshot"):
        planner.latest_offset(again(start), bounded=True)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written: Not a directory"):
        RequestFolder(tmp_path / "file" / "folder").put(ResnapshotRequest("w", (T,)))


def test_without_a_server_a_checkpoint_that_is_not_done_is_refused(feed: TableFeed) -> None:
    planner = reading_planner(feed)
    anchor = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    with pytest.raises(ConfigError, match="still reading its tables"):
        plan(feed, tables=TABLES).latest_offset(again(anchor), bounded=True)


def test_the_progress_tells_how_far_the_tables_are(feed: TableFeed) -> None:
    planner = reading_planner(feed)
    start = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    planner.latest_offset(again(start), bounded=True)
    report = planner.report() or {}
    assert json.loads(json.dumps(report["snapshotProgress"])) == {
        "tables": 3,
        "tablesDone": 1,
        "reading": ["d.t"],
        "rows": 12,
        "bytes": 4096,
        "rowsPerSecond": 4,
        "estimatedRows": 40,
        "secondsLeft": 8,
    }


def test_rows_gather_where_batches_wait_for_a_minimum_and_for_no_longer(
    feed: TableFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(table_rows, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    for limits, coming, left in [
        ({}, 10, 10),  # a plain stream asks nothing and waits for nothing
        ({"min_rows": 5, "max_delay_s": 60.0}, 10, -1),
        ({"min_rows": 5, "max_delay_s": table_rows.READY_POLL_S * 4.5}, 10, 5),
    ]:
        reading = FakeTables(feed)
        planner = reading_planner(feed, reading, **limits)
        anchor = planner.latest_offset(again(planner.initial_offset()), bounded=True)
        reading.coming = coming
        end = planner.latest_offset(again(anchor), bounded=True)
        assert end.snapshot != anchor.snapshot
        assert reading.coming == left
    feed.target = feed.head().position
    reading = FakeTables(feed)
    planner = reading_planner(feed, reading)
    planner.prepare_available_now()
    anchor = planner.latest_offset(again(planner.initial_offset()), bounded=True)
    reading.coming = 10
    planner.latest_offset(again(anchor), bounded=True)
    assert reading.coming == -1
