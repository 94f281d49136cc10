"""A writer's life, stopped between every two system calls, and the directory opened again.

After each stop: it opens; what was acknowledged is there; the log is a stretch of the primary's history, each group
once; and when the rest has come, it is all of it. A process that was killed loses nothing that was published.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.errors import DiskFullError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.readers import ReaderRegistration
from replica.relay_log.location import RelayLocation
from replica.relay_log.log import RelayLog
from replica.relay_writer import chain, open_file
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.retention import Retention, RetentionPolicy
from replica.relay_writer.writer import RelayWriter
from tests.kit.relay.driving import feed, receive, stored
from tests.kit.relay.plain_log import History
from tests.kit.relay.recorded_disk import FULL, Change, Disk, Recorder, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START = GtidPosition.parse("0-1-99,1-1-50")
MAX_FILE_BYTES = 2500
GROUPS = 54


class LateExecutor:
    """In the place of the sealing thread: a task runs when somebody waits for it, or by chance when it is looked at."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __call__(self, *_: object) -> LateExecutor:
        return self

    def submit(self, task: Callable[..., None], *given: object) -> Future[None]:
        chance = self._chance

        class Late(Future[None]):
            def run(self) -> None:
                if not super().done():
                    try:
                        self.set_result(task(*given))
                    except OSError as error:
                        self.set_exception(error)

            def done(self) -> bool:
                if chance.random() < 0.3:
                    self.run()
                return super().done()

            def result(self, timeout: float | None = None) -> None:
                self.run()
                return super().result(timeout)

            def exception(self, timeout: float | None = None) -> BaseException | None:
                self.run()
                return super().exception(timeout)

        return Late()

    def shutdown(self) -> None:
        """Nothing runs by itself."""


class Life(NamedTuple):
    history: History
    changes: list[Change]


def live(directory: Path, patch: pytest.MonkeyPatch, seed: int) -> Life:
    """Streams, rolls, syncs, acknowledgements, age, purge, a full disk at several calls, restarts; ends by a kill."""
    chance = random.Random(seed)
    history = History(GROUPS, START, chance, sizes=(20, 900))
    patch.setattr(chain, "ThreadPoolExecutor", LateExecutor(chance))
    recorder = Recorder(directory, patch)

    def take(relay: RelayWriter, until: int) -> None:
        receiver = Receiver(relay, semi_sync=True)

        def acknowledge() -> None:
            if receiver.take_ack() is not None and chance.random() < 0.15:
                relay.sync()
                recorder.mark("acknowledged", history.count(relay.state.position()))

        for packet in history.wire(history.count(relay.position), until):
            feed(receiver, packet, [chance.choice([100, 700, 5000])], acknowledge=acknowledge)
            recorder.mark("published", history.count(relay.position))

    relay = RelayWriter.open(directory, start=START, max_file_bytes=MAX_FILE_BYTES, max_file_age_s=10)
    take(relay, 7)
    relay.roll_if_old(0)
    relay.roll_if_old(11)
    relay.roll_if_old(30)
    take(relay, 9)
    receive(relay, b"".join(history.wire(9, 10))[:-40], semi_sync=True)
    take(relay, 12)
    relay.close()
    relay = RelayWriter.open(directory, max_file_bytes=MAX_FILE_BYTES, max_file_age_s=10)
    take(relay, 17)
    ReaderRegistration(directory, "a reader").keep_from(RelayLocation(2, 500), "0-1-101")
    policy = RetentionPolicy(1e9, 0, 4000, "drop", 1e9)
    for rule in (policy._replace(slow_readers="pause"), policy):
        recorder.mark("purges")
        Retention(directory, rule).apply(0.0, 0.0)
        recorder.mark("begins", history.count(relay.position) - sum(map(len, stored(directory)[1])))
    ReaderRegistration(directory, "a reader").keep_from(relay.committed, "0-1-120")
    for refused in ("pwrite", "write", "open", "ftruncate", "fdatasync", "pwrite"):
        recorder.refuse[refused] = FULL
        with pytest.raises(DiskFullError):
            take(relay, GROUPS)
        recorder.refuse[chance.choice(["open", "write", "fsync", "rename"])] = FULL
        with contextlib.suppress(DiskFullError):
            relay.reopen()
        recorder.refuse.clear()
        relay.reopen()
        recorder.mark("published", history.count(relay.position))
        take(relay, history.count(relay.position) + 2)
    recorder.mark("purges")
    RelayLog(directory).purge_before(relay.committed)
    recorder.mark("begins", history.count(relay.position) - sum(map(len, stored(directory)[1])))
    take(relay, GROUPS)
    assert history.count(relay.position) == GROUPS
    patch.undo()
    return Life(history, recorder.changes)


@pytest.fixture(scope="module", params=[1])
def life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Life:
    with pytest.MonkeyPatch.context() as patch:
        return live(tmp_path_factory.mktemp("life") / "relay", patch, request.param)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where thousands of directories are made and opened; what is tested there is no longer the disk."""
    memory = Path("/dev/shm")  # noqa: S108
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    monkeypatch.setattr(open_file, "reserve", lambda _, offset: offset + (16 << 20))
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


class Stop(NamedTuple):
    """What must be true of a log that was stopped behind `change`."""

    change: Change
    published: int
    acknowledged: int
    purged: range  # how many groups may have gone from its beginning


def stops(life: Life) -> Iterator[tuple[Disk, Stop]]:
    disk, published, acknowledged, purged = Disk(), 0, 0, range(1)
    for at, change in enumerate(life.changes):
        match change.note:
            case ("published", count):
                published = count
            case ("acknowledged", count):
                acknowledged = count
            case ("purges",):
                begins = next(c.note[1] for c in life.changes[at:] if c.note[:1] == ("begins",))
                purged = range(purged.start, begins + 1)
            case ("begins", count):
                purged = range(count, count + 1)
            case _:
                disk.apply(change)
                yield disk, Stop(change, published, acknowledged, purged)


def check(life: Life, directory: Path, files: dict[str, bytes], stop: Stop, *, at_least: int) -> None:
    """The directory opens, holds a stretch of the history, and takes the rest."""
    history = life.history
    put(directory, files)
    with RelayWriter.open(directory, start=START) as relay:
        count = history.count(relay.position)
        relay_files, ends = stored(directory)
        first = count - sum(map(len, ends))
        assert b"".join(relay_files) == b"".join(history.groups[first:count]), stop
        assert count >= at_least, stop
        assert first in stop.purged, stop
        receive(relay, history.rest(count), semi_sync=True)
        assert history.count(relay.position) == GROUPS, stop
        assert b"".join(stored(directory)[0]) == b"".join(history.groups[first:]), stop
    shutil.rmtree(directory)


def told_apart(states: Iterator[tuple[dict[str, bytes], Stop]]) -> Iterator[tuple[dict[str, bytes], Stop]]:
    """Without those that leave the same files as the one before, of which the same must be true."""
    before: object = None
    for files, stop in states:
        if (files, stop[1:]) != before:
            yield files, stop
        before = files, stop[1:]


def test_the_life_has_everything_in_it(life: Life) -> None:
    kinds = Counter(change.kind for change in life.changes)
    assert kinds["write"] > 150
    assert min(kinds[kind] for kind in ("create", "cut", "sync", "names", "unlink", "rename")) > 5


def test_a_process_killed_between_any_two_calls_loses_nothing_it_published(life: Life, folder: Path) -> None:
    for left, stop in told_apart((disk.after_kill(), stop) for disk, stop in stops(life)):
        check(life, folder / "relay", left, stop, at_least=stop.published)


@pytest.mark.parametrize(
    ("life", "some"),
    [
        pytest.param(1, False, id="nothing loose stays"),
        pytest.param(2, True, id="some stays, 2"),
        pytest.param(1, True, id="some stays, 1", marks=pytest.mark.slow),  # the same with other chances
    ],
    indirect=["life"],
)
def test_a_power_cut_between_any_two_calls_loses_nothing_acknowledged(
    life: Life,
    folder: Path,
    some: bool,  # noqa: FBT001
) -> None:
    def states() -> Iterator[tuple[dict[str, bytes], Stop]]:
        for at, (disk, stop) in enumerate(stops(life)):
            yield disk.after_power_cut(random.Random(at) if some else None), stop

    for left, stop in told_apart(states()):
        check(life, folder / "relay", left, stop, at_least=stop.acknowledged)


def test_a_restart_at_another_position_leaves_the_old_log_or_the_new_one(tmp_path: Path, folder: Path) -> None:
    elsewhere = GtidPosition.parse("0-1-4999,1-1-4000")
    chance = random.Random(8)
    old = History(12, START, chance, sizes=(20, 900))
    new = History(6, elsewhere, chance, sizes=(20, 900), first=5000)
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(tmp_path / "relay", patch)
        relay = RelayWriter.open(tmp_path / "relay", start=START, max_file_bytes=MAX_FILE_BYTES)
        receive(relay, old.rest(0), semi_sync=True)
        relay.sync()
        before = len(recorder.changes)
        relay.restart(elsewhere)
        receive(relay, new.rest(0), semi_sync=True)
        relay.sync()
        patch.undo()
    disk, seen = Disk(), Counter[str]()
    for at, change in enumerate(recorder.changes):
        disk.apply(change)
        if at < before:
            continue
        kill = disk.after_kill()
        for left in (kill, disk.after_power_cut(None), disk.after_power_cut(random.Random(at))):
            put(folder / "relay", left)
            with RelayWriter.open(folder / "relay", start=elsewhere) as again:
                held = b"".join(stored(folder / "relay")[0])
                history = new if again.position in new.positions else old
                count = history.count(again.position)
                assert b"".join(history.groups[:count]).endswith(held), change
                assert history is new or count == 12, change
                assert held or again.position == elsewhere, change
                seen["new" if history is new else "old"] += 1
                number = again.head.location.file
            shutil.rmtree(folder / "relay")
            assert number > 1 or left is not kill, "places of the old log are none of the new one"
    assert (history, count) == (new, 6)
    assert seen["old"] > 10
    assert seen["new"] > 10
