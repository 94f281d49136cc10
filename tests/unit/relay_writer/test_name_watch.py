"""Files that lose their names while they are written: nothing is acknowledged, and nothing of others is touched."""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.directory.lock import LOCK_NAME
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = GtidPosition.parse("0-1-1")


def some_groups() -> Primary:
    primary = Primary.dump()
    for seq in range(2, 5):
        primary.transaction(Gtid(0, 1, seq))
    return primary


def another_daemons(folder: Path) -> None:
    shutil.rmtree(folder)
    other = RelayWriter.open(folder, start=GtidPosition.parse("0-9-9"))
    receive(other, some_groups().wire())
    other._lock.close()  # as if it ran on


LOSSES: dict[str, Callable[[Path], object]] = {
    "the file removed": lambda folder: relay_path(folder, 1).unlink(),
    "the file moved": lambda folder: relay_path(folder, 1).rename(folder / "kept"),
    "the file replaced": lambda folder: shutil.copy(relay_path(folder, 1), folder / "x").rename(relay_path(folder, 1)),
    "the folder emptied": lambda folder: [path.unlink() for path in folder.iterdir() if path.is_file()],
    "the folder removed": shutil.rmtree,
    "the folder moved": lambda folder: folder.rename(folder.with_name("moved")),
    "the folder of another daemon": another_daemons,
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_no_sync_before_an_ack_returns_and_nothing_is_touched_by_name(
    tmp_path: Path, loss: Callable[[Path], object]
) -> None:
    folder = tmp_path / "relay"
    relay = RelayWriter.open(folder, start=START)
    receive(relay, some_groups().wire())
    relay.sync()
    relay.check_files()
    loss(folder)
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RelayError, match=r"removed, moved or replaced while it was written"):
        relay.sync()
    with pytest.raises(RelayError, match=r"removed, moved or replaced while it was written"):
        relay.restart(START)
    relay.close()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == left


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_close_after_it_ends_without_an_error_and_touches_nothing(
    tmp_path: Path, loss: Callable[[Path], object]
) -> None:
    folder = tmp_path / "relay"
    relay = RelayWriter.open(folder, start=START)
    primary = Primary.dump()
    receive(relay, primary.wire())  # a file without a group, which a close removes by its name
    loss(folder)
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    relay.close()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == left


@pytest.mark.parametrize("name", ["relay.head", "relay.000001.idx", LOCK_NAME])
def test_what_readers_and_other_replicas_are_told_by_is_missed_too(tmp_path: Path, name: str) -> None:
    with RelayWriter.open(tmp_path, start=START) as relay:
        receive(relay, some_groups().wire())
        (tmp_path / name).unlink()
        relay.sync()  # the groups can be found again: an ACK is right
        with pytest.raises(RelayError, match=name):
            relay.check_files()
    with RelayWriter.open(tmp_path) as again:
        assert again.position == GtidPosition.parse("0-1-4")
        assert index_path(tmp_path, 1).exists()


def test_the_last_file_is_missed_when_it_is_not_open_too(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path, start=START) as relay:
        receive(relay, some_groups().wire())
    with RelayWriter.open(tmp_path) as relay:  # not connected yet
        relay.check_files()
        relay_path(tmp_path, 1).unlink()
        with pytest.raises(RelayError, match=r"relay\.000001 was removed"):
            relay.check_files()


def test_purging_and_rolling_are_no_losses(tmp_path: Path) -> None:
    with RelayWriter.open(tmp_path, start=START, max_file_bytes=500) as relay:
        receive(relay, some_groups().wire())
        relay.sync()
        assert len(relay_numbers(tmp_path)) > 2
        for number in range(1, relay.committed.file):
            relay_path(tmp_path, number).unlink()
        relay.sync()
        relay.check_files()


def test_a_full_disk_is_no_loss_but_a_folder_lost_meanwhile_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    relay = RelayWriter.open(tmp_path / "relay", start=START)
    receive(relay, some_groups().wire())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(DiskFullError):
            relay.sync()
    relay.check_files()
    shutil.rmtree(tmp_path / "relay")
    with pytest.raises(RelayError, match="removed, moved or replaced") as caught:
        relay.check_files()
    assert not isinstance(caught.value, DiskFullError)
    relay.close()
