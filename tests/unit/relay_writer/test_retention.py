from __future__ import annotations

import fcntl
import os
import random
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.errors import DataLossError
from replica.protocol.gtid import Gtid
from replica.relay_log.directory.readers import READERS_NAME, ReaderRegistration, registered_readers
from replica.relay_log.files.index import last_entry
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer import retention as module
from replica.relay_writer.retention import (
    CLOCK_NAME,
    MAX_LOCKED_S,
    MAX_STEP_S,
    Retention,
    RetentionPolicy,
    SteppedClock,
)
from replica.relay_writer.writer import RelayWriter
from tests.fixtures.mariadb import wait_until
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import feed, receive
from tests.kit.relay.recorded_disk import Disk, Recorder, put
from tests.unit.relay_writer.test_writer import primary_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAST_GROUP = 1_700_000_000  # of every group of the primary in the tests
NOW = LAST_GROUP + 1000
DAY = 86_400
KEEP_ALL = RetentionPolicy(1e12, 1 << 60, 1 << 60, "drop", 1e12)


class Log(NamedTuple):
    directory: Path
    relay: RelayWriter

    @property
    def sizes(self) -> dict[int, int]:
        return {n: relay_path(self.directory, n).stat().st_size for n in relay_numbers(self.directory)}

    def apply(self, policy: RetentionPolicy, now: float = NOW) -> module.Removed:
        return Retention(self.directory, policy).apply(now, 0.0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Six complete files and the one being written; written at the time of their groups."""
    relay = RelayWriter.open(tmp_path, max_file_bytes=5000)
    receive(relay, primary_of(27).wire())
    relay.sync()
    assert relay_numbers(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    for number in relay_numbers(tmp_path):
        os.utime(relay_path(tmp_path, number), (LAST_GROUP, LAST_GROUP))
    yield Log(tmp_path, relay)
    relay.close()


def test_nothing_goes_within_the_limits(log: Log) -> None:
    assert log.apply(KEEP_ALL) == module.Removed(oldest=RelayLocation(1, 0))
    assert Retention(log.directory / "nothing here", KEEP_ALL).apply(NOW, 0.0) == module.Removed()


def test_by_age_all_go_but_the_one_with_the_last_group(log: Log) -> None:
    policy = KEEP_ALL._replace(retain_s=1000)
    assert log.apply(policy, NOW).files == 0
    sizes = log.sizes
    removed = log.apply(policy, NOW + 1)
    assert removed == module.Removed(6, sum(sizes.values()) - sizes[7], oldest=RelayLocation(7, 0))
    assert relay_numbers(log.directory) == [7]
    assert not index_path(log.directory, 6).exists()
    assert log.relay.total_bytes() == sizes[7]
    assert not log.relay.has_older_files()


def test_the_age_is_that_of_the_last_group_or_of_its_writing_whichever_is_later(log: Log) -> None:
    os.utime(relay_path(log.directory, 3), (NOW, NOW))
    policy = KEEP_ALL._replace(retain_s=DAY)
    assert log.apply(policy, NOW + DAY - 500).files == 2, "file 3 came later, and what follows it stays"
    assert log.apply(policy, NOW + DAY + 1).files == 4
    os.utime(relay_path(log.directory, 7), (10, 10))


def test_by_size_the_oldest_go(log: Log) -> None:
    sizes = log.sizes
    limit = sum(sizes.values()) - sizes[1] - 1
    assert log.apply(KEEP_ALL._replace(retain_bytes=limit)).files == 2
    assert log.apply(KEEP_ALL._replace(retain_bytes=limit)).files == 0


def test_a_file_that_is_not_sealed_stays(log: Log) -> None:
    path = index_path(log.directory, 2)
    path.write_bytes(path.read_bytes()[:-5])
    assert log.apply(KEEP_ALL._replace(retain_bytes=0)).files == 1
    assert relay_numbers(log.directory)[0] == 2


def test_what_a_reader_needs_stays_up_to_the_limit(log: Log) -> None:
    registration = ReaderRegistration(log.directory, "q")
    registration.keep_from(RelayLocation(3, 1000), "0-1-10")
    policy = KEEP_ALL._replace(retain_bytes=0, retain_s=1, reader_expiry_s=1e12)
    assert log.apply(policy).files == 2, "before the file it reads in"
    registration.keep_from(RelayLocation(5, 0), "0-1-20")
    assert log.apply(policy).files == 2
    registration.close()
    assert log.apply(policy).files == 2


def test_drop_removes_what_a_slow_reader_needs_and_tells_it(log: Log) -> None:
    slow, fast = ReaderRegistration(log.directory, "slow"), ReaderRegistration(log.directory, "fast")
    slow.keep_from(RelayLocation(2, 1000), "0-1-10")
    fast.keep_from(RelayLocation(6, 1000), "0-1-30")
    sizes = log.sizes
    policy = KEEP_ALL._replace(retain_bytes=0, max_bytes=sum(sizes[n] for n in (4, 5, 6, 7)))
    removed = log.apply(policy)
    assert removed.dropped_readers == ("slow",)
    assert removed.files == 5, "and with nobody left there, what fast does not need"
    with pytest.raises(DataLossError, match=f"more than {policy.max_bytes} bytes"):
        slow.check()
    fast.check()
    assert [reader.name for reader in registered_readers(log.directory)] == ["fast"]


def test_pause_keeps_what_a_slow_reader_needs(log: Log) -> None:
    slow = ReaderRegistration(log.directory, "slow")
    slow.keep_from(RelayLocation(2, 1000), "0-1-10")
    removed = log.apply(KEEP_ALL._replace(retain_bytes=0, max_bytes=0, slow_readers="pause"))
    assert (removed.files, removed.dropped_readers) == (1, ())
    slow.check()


@pytest.mark.parametrize(("slow_readers", "files"), [("drop", 6), ("pause", 2)])
def test_a_disk_that_is_nearly_full_counts_as_too_much(log: Log, slow_readers: module.SlowReaders, files: int) -> None:
    ReaderRegistration(log.directory, "q").keep_from(RelayLocation(3, 1000), "0-1-10")
    policy = KEEP_ALL._replace(min_free_bytes=1 << 60, slow_readers=slow_readers)
    removed = log.apply(policy)
    assert removed.files == files
    assert removed.dropped_readers == (("q",) if slow_readers == "drop" else ())


def test_a_reader_not_seen_for_long_is_forgotten(log: Log) -> None:
    registration = ReaderRegistration(log.directory, "gone")
    registration.keep_from(RelayLocation(1, 0), "")
    os.utime(log.directory / READERS_NAME / "gone.json", (NOW - 50, NOW - 50))
    (log.directory / READERS_NAME / "long ago.dropped").write_text("")
    os.utime(log.directory / READERS_NAME / "long ago.dropped", (5, 5))
    policy = KEEP_ALL._replace(retain_bytes=0, reader_expiry_s=100)
    assert log.apply(policy, NOW + 49).files == 0
    removed = log.apply(policy, NOW + 51)
    assert removed.expired_readers == ("gone",)
    assert removed.files == 6
    assert list((log.directory / READERS_NAME).iterdir()) == []


def test_a_clock_a_year_ahead_removes_nothing_by_age_until_that_age_has_passed(log: Log) -> None:
    registration = ReaderRegistration(log.directory, "q")
    registration.keep_from(RelayLocation(4, 0), "")
    os.utime(log.directory / READERS_NAME / "q.json", (NOW, NOW))
    policy = KEEP_ALL._replace(retain_s=DAY, reader_expiry_s=7 * DAY)
    retention = Retention(log.directory, policy)
    assert retention.apply(NOW, 0.0).files == 0
    ahead = NOW + 365 * DAY
    held = retention.apply(ahead + 5, 5.0)
    assert held.files == 0
    assert "ahead" in held.blocked_by
    again = Retention(log.directory, policy)  # another process, the same log
    assert again.apply(ahead + 10, 70.0).files == 0
    assert again.apply(ahead + DAY, 70.0 + DAY - 10).files == 0
    removed = again.apply(ahead + DAY + 10, 70.0 + DAY)
    assert (removed.files, removed.expired_readers, removed.blocked_by) == (3, (), ""), (
        "by age now, but not the readers"
    )
    os.utime(log.directory / READERS_NAME / "q.json", (ahead, ahead))
    assert again.apply(ahead + 8 * DAY, 70.0 + 8 * DAY).expired_readers == ("q",)


def test_a_clock_that_goes_back_keeps_files_until_the_size_limit(log: Log) -> None:
    retention = Retention(log.directory, KEEP_ALL._replace(retain_s=100, retain_bytes=sum(log.sizes.values()) - 1))
    removed = retention.apply(LAST_GROUP - 365 * DAY, 0.0)
    assert removed.files == 1
    assert retention.apply(LAST_GROUP - 365 * DAY + 99, 99.0).files == 0
    assert retention.apply(LAST_GROUP - 365 * DAY + 101, 101.0).files == 5, "counted from when it was first seen"


def test_a_reader_that_holds_the_lock_is_waited_for_but_not_for_ever(log: Log) -> None:
    retention = Retention(log.directory, KEEP_ALL._replace(retain_bytes=0))
    held = os.open(log.directory / READERS_NAME, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert retention.apply(NOW, 0.0) == module.Removed(oldest=RelayLocation(1, 0))
    assert retention.apply(NOW, MAX_LOCKED_S - 1).files == 0
    assert retention.apply(NOW, MAX_LOCKED_S + 1).files == 6
    os.close(held)


def test_files_that_somebody_else_removed_are_no_error(log: Log) -> None:
    retention = Retention(log.directory, KEEP_ALL._replace(retain_bytes=sum(log.sizes.values())))
    retention.apply(NOW, 0.0)
    for number in (1, 2):
        relay_path(log.directory, number).unlink()
        index_path(log.directory, number).unlink()
    assert retention.apply(NOW, 1.0) == module.Removed(oldest=RelayLocation(3, 0))


def test_a_turn_looks_at_a_few_files_however_many_there_are(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    retention = Retention(log.directory, KEEP_ALL)
    retention.apply(NOW, 0.0)
    listed: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: (listed.append(str(path)), real(path, **more))[1])
    retention.apply(NOW, 1.0)
    assert len([path for path in listed if path.startswith(f"{log.directory}/relay.0")]) <= 3


def test_beside_a_writer_and_readers_that_do_not_stop(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path, max_file_bytes=3000) as relay:
        receive(relay, primary_of(5).wire())
        log, registration = RelayLog(tmp_path), ReaderRegistration(tmp_path, "q")
        registration.keep_from(relay.committed, "")
        retention, stop, removed = Retention(tmp_path, KEEP_ALL._replace(retain_bytes=0)), threading.Event(), [0]

        begun = threading.Event()

        def remove() -> None:
            while not stop.is_set():
                removed[0] += retention.apply(NOW, 0.0).files
                begun.set()

        thread = threading.Thread(target=remove)
        thread.start()
        try:
            assert begun.wait(60)
            primary = Primary(sequence=5)
            primary.open_file("bin.000008")
            receiver = receive(relay, primary.wire())
            place = relay.committed
            for seq in range(6, 400):
                primary.events.clear()
                primary.transaction(Gtid(0, 1, seq), (900,))
                feed(receiver, primary.wire())
                if seq % 10 == 0:
                    head = log.head()
                    assert head is not None
                    ranges = log.ranges(place, head.location, 1 << 20)
                    assert sum(part.end - part.start for part in ranges) > 5000
                    place = head.location
                    registration.keep_from(place, str(head.position))
        finally:
            stop.set()
            thread.join()
        registration.check()
        relay.sync()  # seals what was written, which the machine may have put off
        # How many turns the thread had among the writer's is the machine's choice; after one more turn at rest what
        # went is exactly what no reader needs, whoever removed it.
        removed[0] += retention.apply(NOW, 0.0).files
        left = relay_numbers(tmp_path)
        assert left[0] == place.file
        assert removed[0] == left[0] - 1
        sizes = [relay_path(tmp_path, number).stat().st_size for number in relay_numbers(tmp_path)]
        assert relay.total_bytes() == sum(sizes)


def test_a_power_cut_after_removing_leaves_the_place_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing was ever acknowledged or synced but by the seals: what is removed must not have been all that was durable.
    live, crashed = tmp_path / "live", tmp_path / "crashed"
    recorder = Recorder(live, monkeypatch)
    relay = RelayWriter.open(live, max_file_bytes=5000)
    receive(relay, primary_of(27).wire())
    wait_until(lambda: last_entry(index_path(live, 6)) is not None, "the complete files are sealed")
    count = len(recorder.changes)
    assert Retention(live, KEEP_ALL._replace(retain_bytes=0)).apply(NOW, 0.0).files > 3
    monkeypatch.undo()
    disk = Disk()
    for at, change in enumerate(recorder.changes):
        disk.apply(change)
        if at < count or change.kind != "unlink":
            continue
        for chance in (None, random.Random(at)):
            directory = crashed / f"{at}{chance is None}"
            crashed.mkdir(exist_ok=True)
            put(directory, disk.after_power_cut(chance))
            with RelayWriter.open(directory) as again:
                assert again.head.location.offset, "a log that knows where it ends"
    relay.close()


WALL = 1_700_000_000.0


def test_time_that_passes_is_no_step(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    for second in range(0, 100_000, 5000):
        clock.tick(WALL + second, second)
    assert not clock.stepped_within(1e15)
    assert clock.last_step == ""


def test_small_steps_and_steps_back_are_taken_as_they_are(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    for second, wall in enumerate([WALL, WALL + MAX_STEP_S, WALL - 1e8, WALL - 1e8 + 60, 0.0]):
        clock.tick(wall, float(second))
    assert not clock.stepped_within(1e15)


def test_a_step_ahead_is_remembered_for_as_long_as_it_ran(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    clock.tick(WALL, 0.0)
    clock.tick(WALL + 1e7, 1.0)
    assert clock.stepped_within(0.5)
    assert "ahead by 9999999 s" in clock.last_step
    clock.tick(WALL + 1e7 + 99, 100.0)
    assert not clock.stepped_within(99.0)
    assert clock.stepped_within(99.1)


def test_the_next_process_knows_of_it_and_compares_with_the_last_record(tmp_path: Path) -> None:
    first = SteppedClock(tmp_path)
    first.tick(WALL, 5000.0)
    first.tick(WALL + 100, 5100.0)
    second = SteppedClock(tmp_path)
    second.tick(WALL + 100 + 2 * MAX_STEP_S, 3.0)  # its monotonic clock began anew
    assert second.stepped_within(1.0)
    second.tick(WALL + 150 + 2 * MAX_STEP_S, 53.0)
    second.tick(WALL + 200 + 2 * MAX_STEP_S, 103.0)
    third = SteppedClock(tmp_path)
    assert third.stepped_within(101.0)
    assert not third.stepped_within(100.0)
    assert third.last_step == second.last_step


def test_a_folder_that_takes_no_record_is_no_error_here(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path / "missing")
    clock.tick(WALL, 0.0)
    clock.tick(WALL + 1e6, 1.0)
    assert clock.stepped_within(1.0)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"wall": "x", "since_step": null, "step": ""}', b"\xff"]
)
def test_a_torn_record_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLOCK_NAME).write_bytes(content)
    clock = SteppedClock(tmp_path)
    clock.tick(WALL, 1.0)
    assert not clock.stepped_within(1e15)
