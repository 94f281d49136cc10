from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replica.relay_writer import open_file
from replica.relay_writer.open_file import OpenFile, begin_writing

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
