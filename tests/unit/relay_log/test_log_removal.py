"""Looks into a log from which files are being removed find what is still there."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from replica.errors import DataLossError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.location import RelayLocation, index_path, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.xa import prepared_at
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

FILES = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log") / "relay"
    feed = RelayFeed(folder)
    for number in range(1, FILES + 1):
        feed.primary.file = f"bin.{number:06d}"
        feed.arrive(f"0-1-{number}" + (" prepare x" if number == FILES - 1 else ""))
    feed.close()
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A log of which a test may remove what it likes."""
    return Path(shutil.copytree(whole, tmp_path / "relay"))


def _remove(folder: Path, number: int) -> None:
    relay_path(folder, number).unlink()
    index_path(folder, number).unlink()


def test_removal_in_the_middle_of_a_look_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [1, 2, 3, 4, 5]

    def meets_a_gap(log: RelayLog, position: GtidPosition) -> RelayLocation | None:
        if before:
            _remove(folder, before.pop(0))
            raise DataLossError("a file that has just gone")
        return locate(log, position)

    locate = RelayLog._locate
    monkeypatch.setattr(RelayLog, "_locate", meets_a_gap)
    log = RelayLog(folder)
    assert log.locate(GtidPosition.parse(f"0-1-{FILES}")) == log.head().location  # type: ignore[union-attr]
    assert log.oldest() == RelayLocation(6, 0)


def test_an_error_that_is_none_of_removal_stays_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(log: RelayLog) -> GtidPosition:
        raise DataLossError("for good")

    monkeypatch.setattr(RelayLog, "_first_position", fails)
    with pytest.raises(DataLossError, match="for good"):
        RelayLog(folder).first_position()


def test_looks_beside_a_removal_all_succeed(folder: Path) -> None:
    goal = GtidPosition.parse(f"0-1-{FILES}")

    def remove() -> None:
        for number in range(1, FILES - 2):
            _remove(folder, number)

    remover = threading.Thread(target=remove)
    remover.start()
    looks = 0
    while remover.is_alive() or not looks:
        log = RelayLog(folder)
        location = log.locate(goal)
        assert location is not None
        assert log.first_position() is not None
        assert [group.gtid.seq_no for group in prepared_at(log, location)] == [FILES - 1]
        looks += 1
    remover.join()
    assert RelayLog(folder).oldest() == RelayLocation(FILES - 2, 0)
