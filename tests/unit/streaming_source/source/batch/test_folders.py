"""Folders of batch reads: those of a block end with it, also after their process was killed, and all files count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from streaming_source.options.source_options import SourceOptions
from streaming_source.source.batch import folders
from streaming_source.source.batch.folders import finish, passing_base, take_folder

if TYPE_CHECKING:
    from pathlib import Path

ENDED = 2**22 + 1
"""Number of a process above the largest that Linux gives."""


def failing(parent: Path) -> None:
    with passing_base(parent) as base:
        (base / "batch-1").mkdir()
        raise ZeroDivisionError


def test_a_passing_base_goes_with_its_block_and_with_what_killed_processes_left(tmp_path: Path) -> None:
    parent = tmp_path / "relay"
    left = parent / f"passing-{ENDED}-1-abcd"
    (left / "batch-1").mkdir(parents=True)
    with passing_base(parent) as first, passing_base(parent) as second:
        assert first != second
        assert {path.name for path in parent.iterdir()} == {first.name, second.name}, "a running process keeps its own"
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "batch-1").mkdir()
    assert list(parent.iterdir()) == []
    with pytest.raises(ZeroDivisionError):
        failing(parent)
    assert list(parent.iterdir()) == []


def test_the_rows_of_tables_count_against_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "BUSY_S", 600.0)
    given = {"host": "db1", "user": "u", "password": "p", "table": "d.t", "relaydir": str(tmp_path)}
    options = SourceOptions.parse(given | {"relaymaxbytes": "16m"})
    rows = take_folder(options, "one").path / "tables" / "d.t"
    rows.mkdir(parents=True)
    with (rows / "part").open("wb") as file:
        file.truncate((16 << 20) + 1)
    finish(rows.parent.parent)
    with pytest.raises(RelayError, match="have fetched 16 MB into"):
        take_folder(options, "two")
    monkeypatch.setattr(folders, "BUSY_S", 0.0)
    assert take_folder(options, "two").path.exists()
    assert not rows.exists(), "what nobody reads goes first"
