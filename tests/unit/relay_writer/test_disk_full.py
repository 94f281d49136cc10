"""The disk of the relay log fills up, for real where a small one can be mounted, and has room again later."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from typing import TYPE_CHECKING

import pytest

from replica.errors import DataLossError, DiskFullError, RelayError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.readers import ReaderRegistration
from replica.relay_log.location import RelayLocation
from replica.relay_log.log import RelayLog
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.retention import Retention, RetentionPolicy
from replica.relay_writer.writer import RelayWriter
from tests.fixtures.small_disk import KINDS, MountRefusedError, small_disk
from tests.kit.relay.driving import feed, receive, stored
from tests.kit.relay.plain_log import History

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = GtidPosition.parse("0-1-99,1-1-50")


def history(groups: int = 60, size: int = 200_000) -> History:
    return History(groups, START, random.Random(5), sizes=(size // 2, size))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with contextlib.ExitStack() as mounted:
        try:
            disk = mounted.enter_context(small_disk(tmp_path, 12, request.param))
        except MountRefusedError as error:
            pytest.skip(f"the same with made-up errors is tested below: {error}")
        yield disk


def test_a_disk_that_fills_up_stops_it_and_room_lets_it_go_on(place: Path) -> None:
    whole = history(80)
    ballast = place / "ballast"
    ballast.write_bytes(bytes(6 << 20))
    relay = RelayWriter.open(place / "relay", start=START, max_file_bytes=1 << 20)
    assert 0 < relay.free_bytes() < 6 << 20
    with pytest.raises(DiskFullError, match="No space left"):
        receive(relay, whole.rest(0), [65_536], semi_sync=True)
    count = whole.count(relay.position)
    assert count > 10
    for _ in range(3):
        with pytest.raises(DiskFullError, match="No space left"):
            relay.reopen()
        with pytest.raises(DiskFullError):
            relay.begin_stream(semi_sync=True)
    with pytest.raises(RelayError, match="in use"):
        RelayWriter.open(place / "relay")
    ballast.unlink()
    relay.reopen()
    done = whole.count(relay.position)
    assert count <= done <= count + 1
    receive(relay, b"".join(whole.wire(done, done + 9)), [65_536], semi_sync=True)
    relay.sync()
    files, _ = stored(place / "relay")
    assert b"".join(files) == b"".join(whole.groups[: done + 9])
    relay.close()
    with RelayWriter.open(place / "relay") as again:
        assert whole.count(again.position) == done + 9


def test_retention_makes_room_where_there_is_none_left_for_a_mark(place: Path) -> None:
    whole = history(140)
    relay = RelayWriter.open(place, start=START, max_file_bytes=1 << 20)
    slow = ReaderRegistration(place, "slow")
    receive(relay, b"".join(whole.wire(0, 10)), semi_sync=True)
    slow.keep_from(RelayLocation(1, 500), "0-1-101")
    with pytest.raises(DiskFullError):
        receive(relay, whole.rest(10), [65_536], semi_sync=True)
    with contextlib.suppress(OSError), (place / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert relay.free_bytes() < 4096
    kept = RetentionPolicy(1e9, 1 << 40, 1 << 40, "pause", 1e9, min_free_bytes=3 << 20)
    assert Retention(place, kept).apply().files == 0, "the slow reader is waited for"
    removed = Retention(place, kept._replace(slow_readers="drop")).apply()
    assert removed.files > 1
    assert removed.dropped_readers == ("slow",)
    with pytest.raises(DataLossError, match="bytes free"):
        slow.check()
    relay.reopen()
    done = whole.count(relay.position)
    receive(relay, b"".join(whole.wire(done, done + 5)), [65_536], semi_sync=True)
    assert whole.count(relay.position) == done + 5
    relay.close()


@pytest.mark.parametrize("call", ["open", "write", "pwrite", "fdatasync", "ftruncate", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_whatever_call_refuses_a_full_disk_is_told_from_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    whole = history(30, 2000)
    relay = RelayWriter.open(tmp_path, start=START, max_file_bytes=20_000)
    receive(relay, b"".join(whole.wire(0, 5)), semi_sync=True)
    count, real = whole.count(relay.position), getattr(os, call)
    left = [0 if call in ("open", "fsync") else 1]

    def refuse(*given: object, **more: object) -> object:
        if left[0]:
            left[0] -= 1
            return real(*given, **more)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    expected = RelayError if code == errno.EIO else DiskFullError
    with pytest.raises(RelayError) as met:  # noqa: PT012  (the seal in the background shows at the next sync)
        receive(relay, whole.rest(count), [500], semi_sync=True)
        relay.sync()
    monkeypatch.undo()
    assert type(met.value) is expected
    if expected is RelayError:
        with pytest.raises(RelayError, match="Input/output"):
            relay.reopen()
        relay.close()
        relay = RelayWriter.open(tmp_path, start=START)
    else:
        relay.reopen()
    done = whole.count(relay.position)
    assert done >= count
    receive(relay, whole.rest(done), semi_sync=True)
    files, _ = stored(tmp_path)
    assert b"".join(files) == b"".join(whole.groups)
    relay.close()


def test_reopening_keeps_the_lock_the_counters_and_the_place_of_a_log_without_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = history(4, 500)
    with RelayWriter.open(tmp_path, start=START) as relay:
        receiver = Receiver(relay, semi_sync=True)
        monkeypatch.setattr(os, "pwrite", _full)
        with pytest.raises(DiskFullError):
            feed(receiver, whole.rest(0))
        monkeypatch.undo()
        assert relay.position == START
        relay.reopen()
        assert relay.position == START
        head = RelayLog(tmp_path).head()
        assert head is not None
        assert head.position == START
        with pytest.raises(RelayError, match="in use"):
            RelayWriter.open(tmp_path)
        receive(relay, whole.rest(0), semi_sync=True)
        assert whole.count(relay.position) == 4
        relay.reopen()
        assert whole.count(relay.position) == 4, "nothing to mend"


def test_a_full_disk_at_the_end_is_no_error_and_the_next_opening_seals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = history(4, 500)
    relay = RelayWriter.open(tmp_path, start=START)
    receive(relay, whole.rest(0), semi_sync=True)
    monkeypatch.setattr(os, "write", _full)
    relay.close()
    relay.close()
    monkeypatch.undo()
    with RelayWriter.open(tmp_path) as again:
        assert whole.count(again.position) == 4


def test_opening_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", _full)
    with pytest.raises(DiskFullError, match="No space left"):
        RelayWriter.open(tmp_path / "relay")
    monkeypatch.undo()
    RelayWriter.open(tmp_path / "relay").close()


def _full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
