"""Transactions that stay prepared in the binlog because a crash lost them are given up, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import DisconnectedError
from replica.handshake.start.start import Latest
from replica.protocol.events.transaction_events import XaId
from replica.protocol.gtid import GtidPosition
from streaming_source.offsets.offset import SourceOffset
from streaming_source.planning import feed
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed, plan

if TYPE_CHECKING:
    from pathlib import Path

LOST, ALIVE = XaId(1, b"lost", b""), XaId(1, b"alive", b"")
GROUPS = ["0-1-1", "0-1-2 prepare lost", "0-1-3 prepare alive", "0-1-4", "0-1-5", "0-1-6"]


class Log:
    """One group a relay file, and a query that has read all of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(feed, "CHECK_EVERY_S", 0.0)
        self.feed = RelayFeed(folder)
        self.folder = folder
        self.planner = plan(self.feed, max_bytes=1 << 20)
        self.offset = SourceOffset(GtidPosition(), GtidPosition())
        for group in GROUPS:
            self.arrive(group)
        self.answer("0-1-6", ALIVE)

    def arrive(self, group: str) -> None:
        self.feed.primary.file = f"bin.{len(list(self.folder.glob('relay.00000?'))):06d}"
        self.feed.arrive(group)

    def answer(self, position: str, *prepared: XaId) -> None:
        at = GtidPosition.parse(position)
        self.feed.latest = Latest(at, frozenset(prepared), at)

    def read(self) -> str:
        """Read on and commit; where the next query would resume."""
        self.offset = self.planner.latest_offset(self.offset, bounded=False)
        self.planner.commit(self.offset)
        return str(self.offset.resume)

    @property
    def oldest(self) -> int:
        return min(int(path.suffix[1:]) for path in self.folder.glob("relay.00000?"))


def test_what_two_looks_miss_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, monkeypatch)
    assert log.read() == "0-1-1"
    assert log.oldest == 2
    log.arrive("0-1-7")
    assert log.read() == "0-1-1"  # the second look is at its commit
    assert log.oldest == 3
    log.arrive("0-1-8")
    assert log.read() == "0-1-2"
    log.answer("0-1-8")
    log.arrive("0-1-9 commit alive")
    assert log.read() == "0-1-9"


def test_an_end_that_has_not_come_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, monkeypatch)
    log.answer("0-1-8", ALIVE)  # two more groups are in the binlog already: one may be the end
    for number in (6, 7):
        assert log.read() == "0-1-1"
        assert log.oldest == 2
        log.arrive(f"0-1-{number + 1}" if number == 6 else "0-1-8 commit lost")
    assert log.read() == "0-1-2"


def test_a_server_that_is_behind_the_prepare_cannot_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, monkeypatch)
    log.answer("0-1-1")
    for number in (7, 8, 9):
        log.read()
        log.arrive(f"0-1-{number}")
    assert log.oldest == 2


def test_a_primary_that_does_not_answer_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, monkeypatch)

    def gone() -> Latest:
        raise DisconnectedError("no server")

    monkeypatch.setattr(log.feed, "latest_and_prepared", gone)
    for number in (7, 8, 9):
        assert log.read() == "0-1-1"
        log.arrive(f"0-1-{number}")
    assert log.oldest == 2


def test_nobody_is_asked_while_no_file_is_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, monkeypatch)

    def asked() -> Latest:
        raise AssertionError("a question to the primary")

    monkeypatch.setattr(log.feed, "latest_and_prepared", asked)
    with pytest.raises(AssertionError, match="a question"):
        log.read()
    log.feed.primary.events.clear()
    fresh = RelayFeed(tmp_path / "other", ["0-1-1", "0-1-2 prepare lost", "0-1-3"])
    monkeypatch.setattr(fresh, "latest_and_prepared", asked)
    planner = plan(fresh, max_bytes=1)
    offset = SourceOffset(GtidPosition(), GtidPosition())
    for _ in range(3):
        offset = planner.latest_offset(offset, bounded=True)
        planner.commit(offset)
