from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from replica.daemon.status.record import read_status, write_status
from replica.errors import RelayError
from tests.unit.daemon.records import record

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    write_status(tmp_path, record())
    assert read_status(tmp_path) == record()
    write_status(tmp_path, record(state="paused"))
    assert read_status(tmp_path) == record(state="paused")
    assert [path.name for path in tmp_path.iterdir()] == ["relay.status"]


def test_a_full_disk_is_written_over_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_status(tmp_path, record())
    before = (tmp_path / "relay.status").stat().st_ino

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("replica.relay_log.directory.disk.write_all", full)
    write_status(tmp_path, record(state="disk full", pid=1))
    assert read_status(tmp_path) == record(state="disk full", pid=1)
    assert (tmp_path / "relay.status").stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["relay.status"]


def test_other_errors_are_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_status(tmp_path / "gone", record())


@pytest.mark.parametrize("content", [b"", b"{", b'{"v": 2}', b"[]", record().model_dump_json().encode()[:-9]])
def test_what_is_no_record_is_refused_with_a_reason(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "relay.status").write_bytes(content)
    with pytest.raises(RelayError, match="is not a status record of this version"):
        read_status(tmp_path)


def test_a_newer_daemon_may_say_more(tmp_path: Path) -> None:
    text = record().model_dump_json()
    (tmp_path / "relay.status").write_text(text[:-1] + ', "phase_of_the_moon": "full"}')
    assert read_status(tmp_path) == record()
