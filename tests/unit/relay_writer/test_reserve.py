from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replica.protocol.gtid import Gtid
from replica.relay_log.location import relay_path
from replica.relay_writer import open_file as module
from replica.relay_writer.open_file import RESERVE_BYTES, reserve
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
    monkeypatch.setattr(module, "_fallocate", None)
    assert reserve(-1, 100) == 100 + RESERVE_BYTES


def test_a_disk_with_little_left_keeps_it_for_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(module, "_fallocate", lambda *given: asked.append(given))
    monkeypatch.setattr(module, "_LITTLE_BYTES", 1 << 62)
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert reserve(descriptor, 12) == 12 + RESERVE_BYTES
    assert asked == []
    monkeypatch.setattr(module, "_LITTLE_BYTES", 0)
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
