from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replica.relay_log.files.lookup import SealedFiles
from replica.relay_log.location import relay_path

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def make(directory: Path, *numbers: int) -> None:
    for number in numbers:
        relay_path(directory, number).write_bytes(bytes(number))


def test_files_come_at_the_end_and_go_at_the_beginning(tmp_path: Path) -> None:
    make(tmp_path, 3, 4, 5)
    files = SealedFiles(tmp_path)
    assert files.total() == (0, 0)
    assert files.oldest() is None
    files.extend(4)
    assert files.total() == (2, 7)
    files.add(5, 5)
    make(tmp_path, 6, 7)
    files.extend(7)
    files.extend(7)
    assert files.total() == (5, 25)
    relay_path(tmp_path, 3).unlink()
    relay_path(tmp_path, 4).unlink()
    assert files.oldest() == (5, 5)
    assert files.total() == (3, 18)
    files.forget(5)
    files.forget(5)
    assert files.oldest() == (6, 6)


def test_a_log_that_was_emptied_and_goes_on(tmp_path: Path) -> None:
    make(tmp_path, 1, 2)
    files = SealedFiles(tmp_path)
    files.extend(2)
    for number in (1, 2):
        relay_path(tmp_path, number).unlink()
    assert files.total() == (0, 0)
    make(tmp_path, 3, 4)
    files.extend(4)
    assert files.total() == (2, 7)


def test_the_directory_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *range(1, 200))
    files = SealedFiles(tmp_path)
    files.extend(199)
    looks: list[object] = []
    for name in ("stat", "listdir", "scandir"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, real=real, **more: (looks.append(path), real(path, **more))[1])
    make(tmp_path, 200)
    files.extend(200)
    assert files.total() == (200, 20_100)
    assert len(looks) == 2, "the new one and the oldest"
