from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from replica.readers.rows import progress as module
from replica.readers.rows.progress import DumpProgress, TerminalProgress, watched
from tests.unit.commands.dump.files import reading, vector

if TYPE_CHECKING:
    import pytest

FILES = [str(vector("11.8/rotation.1")), str(vector("11.8/rotation.2"))]


def run(progress: DumpProgress) -> None:
    with progress:
        for _ in reading(FILES, progress=progress).parts():
            pass


def test_a_short_dump_shows_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 7.0))
    run(TerminalProgress(FILES))
    assert capsys.readouterr().err == ""


def test_a_long_one_counts_the_bytes_of_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", -1.0)
    progress = TerminalProgress(FILES)
    run(progress)
    assert progress._bar is not None
    task = progress._bar.tasks[0]
    assert task.total == task.completed == sum(vector(f"11.8/rotation.{n}").stat().st_size for n in (1, 2))


def test_standard_input_has_no_length() -> None:
    assert TerminalProgress([*FILES, "-"])._total is None


def test_a_search_is_watched_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, kind in ((True, TerminalProgress), (False, DumpProgress)):
        monkeypatch.setattr(module.sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert type(watched(FILES)) is kind
