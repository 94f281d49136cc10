from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.protocol.gtid import Gtid
from replica.relay_log.location import relay_path
from replica.relay_writer import open_file
from replica.relay_writer.open_file import RESERVE_BYTES, LogFailure, OpenFile, begin_writing, reserve
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path


def test_a_hint_changes_nothing_and_fails_at_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    descriptor = os.open(path, os.O_RDWR)
    begin_writing(descriptor, 0, 1 << 20)
    begin_writing(descriptor, 100, 100)
    os.close(descriptor)
    begin_writing(descriptor, 0, 10)
    monkeypatch.setattr(open_file, "_sync_file_range", None)
    begin_writing(descriptor, 0, 10)
    assert path.read_bytes() == bytes(1 << 20)


def test_each_byte_is_begun_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(open_file, "WRITE_BYTES", 1000)
    monkeypatch.setattr(open_file, "begin_writing", lambda _file, begin, end: begun.append((begin, end)))
    file = OpenFile(tmp_path, 1, b"head")
    offset = 4
    for size in (300, 800, 5000, 10, 999):
        file.append(memoryview(bytes(size)), offset)
        offset += size
    file.close()
    assert begun == [(4, 1104), (1104, 6104), (6104, 7113)]


def test_what_went_wrong_once_is_raised_from_every_later_call(tmp_path: Path) -> None:
    failure = LogFailure(tmp_path)
    failure.check()
    with pytest.raises(DiskFullError) as first, failure.kept():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for _ in range(2):
        with pytest.raises(DiskFullError) as later:
            failure.check()
        assert later.value is not first.value, "each has a traceback of its own"
        assert (later.value.message, later.value.hint) == (first.value.message, first.value.hint)


def test_an_error_of_ours_is_kept_as_it_is(tmp_path: Path) -> None:
    failure = LogFailure(tmp_path)
    with pytest.raises(RelayError, match="closed"), failure.kept():
        raise RelayError("it was closed", hint="open it")
    with pytest.raises(RelayError, match="closed"):
        failure.check()


def test_the_length_stays_and_truncating_gives_the_space_back(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"twelve bytes")
    assert reserve(descriptor, 12) == 12 + RESERVE_BYTES
    assert os.fstat(descriptor).st_size == 12
    os.ftruncate(descriptor, 12)
    assert os.fstat(descriptor).st_blocks * 512 < RESERVE_BYTES
    os.close(descriptor)


def test_a_file_system_that_cannot_do_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reserve(-1, 100) == 100 + RESERVE_BYTES
    monkeypatch.setattr(open_file, "_fallocate", None)
    assert reserve(-1, 100) == 100 + RESERVE_BYTES


def test_a_disk_with_little_left_keeps_it_for_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(open_file, "_fallocate", lambda *given: asked.append(given))
    monkeypatch.setattr(open_file, "_LITTLE_BYTES", 1 << 62)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert reserve(descriptor, 12) == 12 + RESERVE_BYTES
    assert asked == []
    monkeypatch.setattr(open_file, "_LITTLE_BYTES", 0)
    reserve(descriptor, 12)
    assert len(asked) == 1
    os.close(descriptor)


def test_finished_relay_files_hold_only_their_bytes(tmp_path: Path) -> None:
    primary = Primary.dump()
    primary.transaction(Gtid(0, 1, 1), (100_000,))
    with RelayWriter.open(tmp_path) as relay:
        receive(relay, primary.wire())
        size = relay.committed.offset
    status = relay_path(tmp_path, 1).stat()
    assert status.st_size == size
    assert status.st_blocks * 512 < size + (1 << 20)
