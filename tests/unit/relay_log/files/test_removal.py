from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.files.lookup import remove_files, remove_oldest
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_writer.writer import RelayWriter
from tests.kit.relay.driving import receive
from tests.kit.relay.recorded_disk import Recorder
from tests.unit.relay_writer.test_writer import primary_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_file_then_names_then_sidecar_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, monkeypatch)
    with RelayWriter.open(tmp_path, max_file_bytes=3000) as relay:
        receive(relay, primary_of(12).wire())
    count = len(recorder.changes)
    remove_files(tmp_path, [1, 2])
    assert [(change.kind, change.name) for change in recorder.changes[count:]] == [
        ("unlink", "relay.000001"),
        ("names", ""),
        ("unlink", "relay.000001.idx"),
        ("unlink", "relay.000002"),
        ("names", ""),
        ("unlink", "relay.000002.idx"),
    ]
    monkeypatch.undo()
    remove_files(tmp_path, [1, 2])  # again, after a crash
    assert relay_numbers(tmp_path)[0] == 3


def test_what_is_left_is_on_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path, monkeypatch)
    relay = RelayWriter.open(tmp_path, max_file_bytes=3000)
    receive(relay, primary_of(13).wire())
    relay.sync()
    last = relay.committed.file
    inode = next(c.inode for c in recorder.changes if c.kind == "create" and c.name == relay_path(tmp_path, last).name)
    count = len(recorder.changes)
    remove_oldest(tmp_path, range(1, last))
    kinds = [(change.kind, change.inode) for change in recorder.changes[count : count + 3]]
    assert kinds == [("sync", inode), ("names", 0), ("unlink", 0)]
    remove_oldest(tmp_path, range(last, last))
    assert relay_numbers(tmp_path) == [last]
    assert index_path(tmp_path, last).exists()
    relay.close()
