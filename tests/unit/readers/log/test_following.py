from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError, RelayError
from replica.protocol.gtid import GtidPosition
from replica.readers.log.following import BUSY_POLLS, IDLE_POLL_S, POLL_S, Follower, wait_for_log
from replica.readers.log.in_relay_log import RelayLogReader
from replica.relay_log.location import RelayLocation, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.writer import RelayWriter
from tests.kit.relay.driving import feed
from tests.unit.commands.tail.relay_logs import recorded_log, wire_of
from tests.vectors.load import raw_events

if TYPE_CHECKING:
    from pathlib import Path


class Enough(Exception):  # noqa: N818  (it ends a wait)
    pass


class Sleeps:
    """Counts the pauses, and ends the waiting after so many."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == self.most:
            raise Enough


def group_bytes(log: RelayLog, start: RelayLocation, end: RelayLocation) -> bytes:
    return b"".join(bytes(part.piece.data) for part in RelayLogReader(log).parts(start, end))


def test_every_group_comes_once_while_the_log_grows(tmp_path: Path) -> None:
    wire = wire_of(raw_events("11.8", "transactions"))
    log = RelayLog(tmp_path / "live")
    got = []
    with RelayWriter.open(log.directory, start=GtidPosition(), max_file_bytes=900) as relay:
        receiver = Receiver(relay, semi_sync=False)
        begin = log.head()
        assert begin is not None
        follower = Follower(log, begin, Sleeps(1))
        for at in range(0, len(wire), 333):
            feed(receiver, wire[at : at + 333])
            try:
                end = follower.wait()
            except Enough:
                continue
            got += [bytes(part.piece.data) for part in follower.parts(end)]
            follower = Follower(log, follower.reached, Sleeps(1))
    whole = recorded_log(tmp_path / "whole", "11.8", "transactions")
    head = whole.head()
    assert head is not None
    assert len(relay_numbers(log.directory)) > 3
    assert b"".join(got) == group_bytes(whole, RelayLocation(1, 0), head.location)


def test_it_looks_often_and_then_less_often(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions")
    head = log.head()
    assert head is not None
    sleeps = Sleeps(BUSY_POLLS + 2)
    with pytest.raises(Enough):
        Follower(log, head, sleeps).wait()
    assert sleeps.seconds == [POLL_S] * BUSY_POLLS + [IDLE_POLL_S] * 2


def test_a_log_that_was_not_begun_is_waited_for(tmp_path: Path) -> None:
    log = RelayLog(tmp_path)
    begun = threading.Event()

    def sleep(_: float) -> None:
        recorded_log(tmp_path, "11.8", "transactions")
        begun.set()

    assert wait_for_log(log, sleep) == log.head()
    assert begun.is_set()


def test_purged_before_it_was_read(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700)
    head = log.head()
    assert head is not None
    parts = RelayLogReader(log).parts(RelayLocation(1, 0), head.location)
    next(parts)
    for number in relay_numbers(tmp_path)[:3]:
        relay_path(tmp_path, number).unlink()
    with pytest.raises(DataLossError, match=r"relay\.00000\d was purged before it was read"):
        list(parts)
    with pytest.raises(DataLossError, match="no longer in the relay log"):
        list(RelayLogReader(log).parts(RelayLocation(1, 0), head.location))


def test_begun_anew(tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "relay", "11.8", "transactions", max_file_bytes=700)
    head = log.head()
    assert head is not None
    shutil.rmtree(tmp_path / "relay")
    with (
        RelayWriter.open(tmp_path / "relay", start=GtidPosition()),
        pytest.raises(RelayError, match="The relay log was begun again"),
    ):
        Follower(log, head, Sleeps()).wait()
