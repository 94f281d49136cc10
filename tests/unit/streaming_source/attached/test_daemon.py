"""A reader sees whether its daemon lives without standing in its way, says so, and ends a wait that is too long."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import pytest

from replica.daemon.status.record import STATUS_NAME, write_status
from replica.errors import RelayError
from replica.relay_log.directory.head import HEAD_NAME
from replica.relay_log.directory.lock import RelayLock
from streaming_source.attached import folder as attached_daemon
from streaming_source.attached.folder import DaemonWatch, is_locked
from tests.unit.daemon.records import record
from tests.unit.streaming_source.feeds.relay_feed import next_file_time

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Monotonic seconds that a test moves."""
    now = [1000.0]
    monkeypatch.setattr(attached_daemon.time, "monotonic", lambda: now[0])
    return now


def test_a_lock_is_seen_and_left_to_its_holder(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "nowhere")
    with RelayLock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    with RelayLock(tmp_path):  # the look has not kept it
        pass


def test_a_daemon_that_stays_away_ends_the_wait(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    RelayLock(tmp_path).close()
    watch = DaemonWatch(tmp_path, timeout_s=100)
    for _ in range(10):
        watch.check()
        clock[0] += 10
    assert watch.down_s == 100
    assert len([r for r in caplog.records if "waiting for it, 100 s at most" in r.message]) == 2
    clock[0] += 1
    with pytest.raises(RelayError, match=r"no daemon has been writing .* for 101 s.*daemonTimeout"):
        watch.check()


def test_a_daemon_that_comes_back_is_forgiven(
    tmp_path: Path, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    RelayLock(tmp_path).close()
    watch = DaemonWatch(tmp_path, timeout_s=100)
    watch.check()
    clock[0] += 90
    with RelayLock(tmp_path), caplog.at_level(logging.WARNING):
        watch.check()
    assert watch.down_s == 0
    assert "writes" in caplog.records[-1].message
    assert "again, after 90 s" in caplog.records[-1].message
    clock[0] += 90
    watch.check()  # down again, but not for 180 s
    assert watch.down_s == 0


def test_while_the_status_file_moves_nobody_touches_the_lock(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = DaemonWatch(tmp_path, timeout_s=1)

    def looked(_: Path) -> bool:
        raise AssertionError("the lock was looked at")

    monkeypatch.setattr(attached_daemon, "is_locked", looked)
    for turn in range(5):
        (tmp_path / STATUS_NAME).write_text("x" * turn)
        fresh = tmp_path / f"{STATUS_NAME}.new"
        fresh.write_text(str(turn))
        fresh.replace(tmp_path / STATUS_NAME)
        watch.check()
        clock[0] += 10
    with pytest.raises(AssertionError, match="looked at"):
        watch.check()


def test_a_daemon_that_is_connected_knows_where_it_is(tmp_path: Path) -> None:
    watch = DaemonWatch(tmp_path, timeout_s=1)
    assert not watch.receives
    for state, receives in (("starting", False), ("connecting", False), ("streaming", True), ("paused", True)):
        write_status(tmp_path, record(state=state))
        assert watch.receives is receives


def test_every_start_of_a_writer_is_another_epoch_and_so_is_a_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    folder.mkdir()
    watch = DaemonWatch(folder, timeout_s=1)
    epochs = [watch.epoch]
    for _ in range(2):
        next_file_time(tmp_path)
        with RelayLock(folder):
            (folder / HEAD_NAME).touch()
            epochs.append(watch.epoch)
            assert watch.epoch == epochs[-1]
        is_locked(folder)
        assert watch.epoch == epochs[-1]
    (tmp_path / "held").mkdir()
    shutil.move(folder, tmp_path / "held")  # its inodes are not free for the next
    with RelayLock(folder):
        epochs.append(watch.epoch)
    assert len(set(epochs)) == 4
