"""A query over a relay log that somebody else writes: starts, waits, restarts and resets, beside a real writer."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from replica.daemon.status.record import write_status
from replica.errors import ConfigError, DataLossError, RelayError
from replica.options.values import shown_instant
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.readers import mark_dropped, registered_readers
from replica.relay_log.location import RelayLocation, index_path, relay_path
from streaming_source.attached import feed as attached_feed
from streaming_source.attached import folder as attached_daemon
from streaming_source.attached.feed import AttachedFeed
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning import planner as planner_module
from tests.unit.daemon.records import record
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed, next_file_time, plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming_source.planning.planner import ChangePlanner

GROUPS = [f"0-1-{n}" for n in range(1, 7)]


class Daemon:
    """The writer, one relay file a group, and attached feeds that are closed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = 0
        self.feeds: list[AttachedFeed] = []
        self.writer = RelayFeed(folder)

    def arrive(self, *groups: str) -> None:
        for group in groups:
            self.files += 1
            self.writer.primary.file = f"bin.{self.files:06d}"
            self.writer.arrive(group)

    def arrive_in_a_pause(self, monkeypatch: pytest.MonkeyPatch, *groups: str) -> None:
        """When a feed waits for the first time: not before it has looked, whatever the machine does meanwhile."""
        left = [groups]

        def pause(seconds: float) -> None:
            if left:
                self.arrive(*left.pop())
            else:
                time.sleep(seconds)

        monkeypatch.setattr(attached_feed, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()
        self.writer.close()

    def restart(self) -> None:
        self.writer.close()
        next_file_time(self.folder.parent)
        self.writer = RelayFeed(self.folder)

    def begin_anew(self, *groups: str, first_file: int = 0) -> None:
        """Somebody removes the folder, and the daemon starts again."""
        self.writer.close()
        shutil.move(self.folder, self.folder.with_name(f"{self.folder.name}.old"))
        self.writer, self.files = RelayFeed(self.folder), first_file
        self.arrive(*groups)

    def purge(self, *files: int) -> None:
        for file in files:
            relay_path(self.folder, file).unlink()
            index_path(self.folder, file).unlink()

    def attach(self, **options: str) -> AttachedFeed:
        given = {"table": "shop.orders", "relayDir": str(self.folder), "daemonTimeout": "200ms", **options}
        self.feeds.append(AttachedFeed(SourceOptions.parse(given), self.folder))
        return self.feeds[-1]

    def plan(self, **options: str) -> ChangePlanner:
        return plan(self.attach(**options), max_bytes=1)

    @property
    def kept(self) -> dict[str, int]:
        """The first file that each reader needs."""
        return {reader.name: reader.location.file for reader in registered_readers(self.folder)}


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    # What a test lets arrive is there before it asks: nothing is gained by waiting for more.
    monkeypatch.setattr(planner_module, "LONG_POLL_S", 0.001)
    daemon = Daemon(tmp_path / "relay")
    yield daemon
    daemon.close()


def _offset(gtid: str) -> SourceOffset:
    position = GtidPosition.parse(gtid)
    return SourceOffset(position, position)


def _gtids(planner: ChangePlanner, offset: SourceOffset) -> list[str]:
    """Where the batches end, until there is nothing new."""
    found = []
    while (end := planner.latest_offset(offset, bounded=True)) != offset:
        planner.partitions(offset, end)
        found.append(str(end.position))
        offset = end
    return found


@pytest.mark.parametrize(
    ("start", "position"), [("latest", "0-1-6"), ("earliest", ""), ("0-1-3", "0-1-3"), ("0-1-6", "0-1-6")]
)
def test_a_start_is_a_place_of_the_log(daemon: Daemon, start: str, position: str) -> None:
    daemon.arrive(*GROUPS)
    planner = daemon.plan(startingPosition=start)
    first = planner.initial_offset()
    assert str(first.position) == position
    assert planner.latest_offset(first, bounded=True) == first
    assert _gtids(planner, first) == GROUPS[GROUPS.index(position) + 1 :] if position else GROUPS


def test_latest_of_an_empty_log_has_everything_that_comes(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = daemon.attach()
    daemon.arrive_in_a_pause(monkeypatch, *GROUPS[:2])
    assert str(feed.starting_offset().position) == ""
    assert str(feed.head().position) == "0-1-2"


def test_a_primary_without_a_transaction_has_an_end_too(daemon: Daemon) -> None:
    write_status(daemon.folder, record(state="streaming"))
    assert daemon.attach().starting_offset() == SourceOffset(GtidPosition(), GtidPosition(), anchor=True)


def test_transactions_prepared_at_the_start_are_kept_and_delivered(daemon: Daemon) -> None:
    daemon.arrive("0-1-1", "0-1-2 prepare x", "0-1-3")
    planner = daemon.plan()
    first = planner.initial_offset()
    assert (str(first.position), str(first.resume)) == ("0-1-3", "0-1-1")
    planner.latest_offset(first, bounded=True)
    planner.latest_offset(first, bounded=True)
    assert list(daemon.kept.values()) == [2]
    daemon.arrive("0-1-4 commit x")
    end = planner.latest_offset(first, bounded=True)
    ((part,),) = (partition.ranges for partition in planner.partitions(first, end))
    assert len(part.carried) == 1


def test_the_registration_moves_with_the_query_and_stays_when_it_stops(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    planner = daemon.plan(readerName="orders", startingPosition="earliest")
    offset = planner.initial_offset()
    assert daemon.kept == {"orders": 1}
    planner.latest_offset(offset, bounded=True)
    for file in (1, 2, 3):
        end = planner.latest_offset(offset, bounded=True)
        assert daemon.kept["orders"] in (file - 1, file)
        planner.commit(end)
        assert daemon.kept["orders"] == file
        offset = end
    planner.close()
    assert daemon.kept == {"orders": 3}
    # The next life asks for "latest" once more before it comes to its checkpoint.
    again = daemon.plan(readerName="orders")
    again.initial_offset()
    assert daemon.kept == {"orders": 3}
    assert _gtids(again, offset) == GROUPS[3:]


def test_the_log_is_never_written(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    before = {path.name: path.read_bytes() for path in daemon.folder.glob("relay.??????")}
    planner = daemon.plan(startingPosition="earliest")
    offset = planner.initial_offset()
    planner.latest_offset(offset, bounded=True)
    for _ in GROUPS:
        offset = planner.latest_offset(offset, bounded=True)
        planner.commit(offset)
    assert str(offset.position) == GROUPS[-1]
    assert len(before) == len(GROUPS)
    assert {path.name: path.read_bytes() for path in daemon.folder.glob("relay.??????")} == before


def test_a_purged_position_is_refused_with_the_way_out(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    daemon.purge(1, 2)
    with pytest.raises(DataLossError, match=r"begins at 0-1-2: the transactions after 0-1-1 were removed.*retain_s"):
        daemon.plan().latest_offset(_offset("0-1-1"), bounded=True)
    assert _gtids(daemon.plan(readerName="other"), _offset("0-1-2")) == GROUPS[2:]


def test_a_reader_that_was_dropped_is_told_why(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    running = daemon.plan(readerName="slow")
    end = running.latest_offset(_offset("0-1-1"), bounded=True)
    (reader,) = registered_readers(daemon.folder)
    mark_dropped(daemon.folder, reader, 4, "it held back more than relay_max_bytes")
    daemon.purge(1, 2, 3)
    for offset in (_offset("0-1-1"), end):
        with pytest.raises(DataLossError):
            running.partitions(offset, _offset("0-1-3"))
    running.close()
    stopped = daemon.plan(readerName="slow")
    with pytest.raises(DataLossError, match=r"'slow': it held back more.*relay_max_bytes.*slow_readers=pause"):
        stopped.latest_offset(_offset("0-1-2"), bounded=True)
    stopped.close()
    assert _gtids(daemon.plan(readerName="slow", startingPosition="earliest"), _offset("0-1-3")) == GROUPS[3:]


def test_an_idle_reader_that_was_dropped_is_told_too(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    planner = daemon.plan(readerName="slow")
    assert planner.latest_offset(_offset("0-1-6"), bounded=True) == _offset("0-1-6")
    (reader,) = registered_readers(daemon.folder)
    mark_dropped(daemon.folder, reader, 9, "a test")
    with pytest.raises(DataLossError, match="'slow': a test"):
        planner.latest_offset(_offset("0-1-6"), bounded=True)


def test_another_history_under_the_same_gtid_is_refused(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    planner = daemon.plan(readerName="one")
    end = planner.latest_offset(_offset("0-1-2"), bounded=True)
    assert end.primary is not None
    daemon.begin_anew(*GROUPS)  # the same history from its beginning
    assert planner.latest_offset(end, bounded=True).position == GtidPosition.parse("0-1-4")
    daemon.folder.with_name("relay.old").rename(daemon.folder.with_name("relay.older"))
    daemon.begin_anew(*GROUPS, first_file=40)  # the primary was reset
    with pytest.raises(DataLossError, match=r"0-1-3 is at bin.000043:\d+ of server 9.*query read it at bin.000003"):
        planner.latest_offset(end, bounded=True)


def test_a_history_that_ends_where_a_file_ends_is_recognised(daemon: Daemon) -> None:
    daemon.arrive("0-1-1", "0-1-2", "0-1-3")
    planner = daemon.plan(readerName="one")
    end = planner.latest_offset(_offset("0-1-1"), bounded=True)
    planner.close()
    # Cold, the place of 0-1-2 is found as the beginning of the third file.
    assert _gtids(daemon.plan(readerName="two"), end) == ["0-1-3"]


def test_a_restart_of_the_writer_is_a_new_look_at_every_place(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    planner = daemon.plan()
    offset = planner.latest_offset(_offset("0-1-1"), bounded=True)
    daemon.restart()
    assert _gtids(planner, offset) == GROUPS[2:]
    daemon.restart()
    daemon.arrive("0-1-7")
    assert _gtids(planner, _offset("0-1-6")) == ["0-1-7"]


def test_a_log_that_lost_its_end_is_waited_for(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.arrive(*GROUPS)
    planner = daemon.plan(daemonTimeout="60s")
    end = planner.latest_offset(_offset("0-1-5"), bounded=True)
    daemon.begin_anew(*GROUPS[:4])
    daemon.arrive_in_a_pause(monkeypatch, "0-1-5", "0-1-6", "0-1-7")
    parts = planner.partitions(_offset("0-1-5"), end)
    assert [part.file for partition in parts for part in partition.ranges] == ["bin.000006"]


def test_a_position_the_log_never_reaches_is_an_error_after_a_while(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    with pytest.raises(DataLossError, match=r"is at 0-1-6, and did not reach 5-1-1.*belongs to another server"):
        daemon.plan().latest_offset(_offset("5-1-1"), bounded=True)


def test_a_position_of_another_server_with_the_same_numbers_is_refused(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    with pytest.raises(DataLossError, match=r"does not contain the position 0-9-3.*new checkpoint"):
        daemon.plan().latest_offset(_offset("0-9-3"), bounded=True)


def test_a_daemon_that_is_down_is_waited_for_and_not_for_ever(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(attached_daemon, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(attached_daemon, "CHECK_EVERY_S", 0.0)
    daemon.arrive(*GROUPS)
    planner = daemon.plan(daemonTimeout="60s")
    daemon.writer.close()
    offset = planner.latest_offset(_offset("0-1-5"), bounded=True)  # what is there is read
    assert planner.latest_offset(offset, bounded=True) == offset
    now[0] += 60
    assert planner.latest_offset(offset, bounded=True) == offset
    report = planner.report()
    assert report is not None
    assert report["daemonDownSeconds"] == 60
    now[0] += 1
    with pytest.raises(RelayError, match="no daemon has been writing"):
        planner.latest_offset(offset, bounded=True)


def test_available_now_ends_where_the_log_ended(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS[:4])
    planner = daemon.plan(startingPosition="0-1-1")
    planner.prepare_available_now()
    daemon.arrive(*GROUPS[4:])
    first = planner.initial_offset()
    planner.latest_offset(first, bounded=True)
    assert _gtids(planner, first) == GROUPS[1:4]


def test_two_queries_of_the_same_tables_have_two_names(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.arrive(*GROUPS)
    one, two = daemon.plan(), daemon.plan()
    monkeypatch.setattr("streaming_source.attached.registration.PATIENCE_S", 0.0)
    one.latest_offset(_offset("0-1-1"), bounded=True)
    two.latest_offset(_offset("0-1-4"), bounded=True)
    assert sorted(daemon.kept.values()) == [2, 5]


def test_who_is_asked_about_forgotten_transactions(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    assert daemon.attach().latest_and_prepared() is None


def test_news_is_seen_within_a_poll(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.arrive(*GROUPS[:2])
    feed = daemon.attach()
    here = feed.head().location
    assert not feed.wait_beyond(here, 0.01)
    daemon.arrive_in_a_pause(monkeypatch, "0-1-3")
    assert feed.wait_beyond(here, 60)
    assert feed.head().location == RelayLocation(3, feed.head().location.offset)
    assert attached_feed.POLL_S < attached_feed.IDLE_POLL_S


T0 = 1_700_000_000


def _at(daemon: Daemon, *times: int) -> None:
    """One group a file, 0-1-1 on, committed at T0 and these seconds."""
    for number, time_s in enumerate(times, 1):
        daemon.writer.primary.timestamp = T0 + time_s
        daemon.arrive(f"0-1-{number}")


@pytest.mark.parametrize(
    ("seconds", "position"), [(0, ""), (1, "0-1-1"), (300, "0-1-3"), (301, "0-1-4"), (999, "0-1-5")]
)
def test_a_time_is_looked_up_in_the_log(daemon: Daemon, seconds: int, position: str) -> None:
    _at(daemon, 0, 100, 200, 300, 400)
    offset = daemon.plan(startingPosition=shown_instant(T0 + seconds)).initial_offset()
    assert str(offset.position) == position
    assert offset.anchor


def test_times_to_come_and_from_before_the_log_are_refused(daemon: Daemon) -> None:
    _at(daemon, 0, 100, 200, 300)
    with pytest.raises(ConfigError, match="is still to come"):
        daemon.plan(readerName="q1", startingPosition="2105-01-01T00:00:00Z").initial_offset()
    daemon.purge(1, 2)
    with pytest.raises(DataLossError, match="begins after 0-1-2, with a transaction of 2023-") as caught:
        daemon.plan(readerName="q2", startingPosition=shown_instant(T0 + 150)).initial_offset()
    assert "failOnDataLoss=false starts there too" in caught.value.hint
    lenient = daemon.plan(readerName="q3", startingPosition=shown_instant(T0 + 150), failOnDataLoss="false")
    assert str(lenient.initial_offset().position) == "0-1-2"
    assert (
        str(daemon.plan(readerName="q4", startingPosition=shown_instant(T0 + 250)).initial_offset().position) == "0-1-3"
    )


def test_what_was_removed_is_gone_over_where_that_is_allowed(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.arrive(*GROUPS)
    daemon.purge(1, 2, 3)
    with pytest.raises(DataLossError, match="transactions after 0-1-1 were removed"):
        _gtids(daemon.plan(readerName="q5"), _offset("0-1-1"))
    planner = daemon.plan(readerName="q6", failOnDataLoss="false")
    assert _gtids(planner, _offset("0-1-1")) == GROUPS[3:]
    report = planner.report()
    assert report is not None
    assert report["dataLoss"] == [{"after": "0-1-1", "upTo": "0-1-3"}]
    assert "transactions after 0-1-1 up to 0-1-3 were removed" in caplog.text
    start = daemon.plan(readerName="q7", startingPosition="0-1-1", failOnDataLoss="false").initial_offset()
    assert str(start.position) == "0-1-3"


def test_a_batch_whose_end_was_removed_too_is_empty_and_the_next_goes_on(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    daemon.purge(1, 2, 3)
    planner = daemon.plan(readerName="q8", failOnDataLoss="false")
    parts = planner.partitions(_offset("0-1-1"), _offset("0-1-2"))
    wanted = {(bounds.lower, bounds.upper) for part in parts for r in part.ranges if (bounds := r.bounds)}
    assert wanted <= {(None, ((0, 2),))}, "nothing beyond the batch is delivered with it"
    assert _gtids(planner, _offset("0-1-2"))[-1] == "0-1-6"


def test_files_that_are_dropped_while_the_query_runs_are_gone_over_where_that_is_allowed(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS[:4])
    planner = daemon.plan(readerName="slow", failOnDataLoss="false")
    first = planner.latest_offset(_offset("0-1-1"), bounded=True)
    assert str(first.position) == "0-1-2"
    daemon.purge(1, 2, 3)
    (reader,) = registered_readers(daemon.folder)
    mark_dropped(daemon.folder, reader, 4, "it held back more than relay_max_bytes")
    daemon.arrive(*GROUPS[4:])
    assert _gtids(planner, first) == GROUPS[3:]
    report = planner.report()
    assert report is not None
    assert report["dataLoss"] == [{"after": "0-1-2", "upTo": "0-1-3"}]


def test_another_history_is_refused_although_losses_are_allowed(daemon: Daemon) -> None:
    daemon.arrive(*GROUPS)
    with pytest.raises(DataLossError, match=r"does not contain the position 0-9-3"):
        daemon.plan(readerName="q9", failOnDataLoss="false").latest_offset(_offset("0-9-3"), bounded=True)


def test_rows_prepared_before_the_log_begins_can_be_lost_alone(daemon: Daemon) -> None:
    daemon.arrive("0-1-1", "0-1-2 prepare x", "0-1-3", "0-1-4", "0-1-5")
    daemon.purge(1, 2)
    offset = SourceOffset(GtidPosition.parse("0-1-3"), GtidPosition.parse("0-1-1"))
    with pytest.raises(DataLossError, match=r"transactions after 0-1-3 are available.*its rows are lost"):
        daemon.plan(readerName="q10").latest_offset(offset, bounded=True)
    planner = daemon.plan(readerName="q11", failOnDataLoss="false")
    assert _gtids(planner, offset) == ["0-1-4", "0-1-5"]
    report = planner.report()
    assert report is not None
    assert report["dataLoss"] == [{"after": "0-1-1", "upTo": "0-1-3", "preparedOnly": True}]


def test_a_silent_log_is_looked_at_less_often(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.arrive(*GROUPS)
    feed, now = daemon.attach(), [1000.0]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(attached_feed, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    feed._news_s = now[0]
    assert not feed.wait_beyond(feed.head().location, 60)
    assert (pauses[0], max(pauses)) == (attached_feed.POLL_S, attached_feed.IDLE_POLL_S)
    assert pauses[:-1] == sorted(pauses[:-1])
