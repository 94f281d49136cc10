"""A turn of the retention: what went is counted and said once, and a reader that lost files is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from replica.daemon.config import DaemonConfig
from replica.daemon.retain import MAX_DROPPED_NAMES, Retaining
from replica.relay_writer.retention import Removed

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def turns(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *removed: Removed
) -> tuple[Retaining, list[tuple[str, object]]]:
    """The work after these turns, and the log lines."""
    with structlog.testing.capture_logs() as lines:
        config = DaemonConfig.parse({"user": "repl", "relay_dir": str(directory)})
        work = Retaining(config, directory, structlog.get_logger())
        left = iter(removed)
        monkeypatch.setattr(work._retention, "apply", lambda: next(left))
        for _ in removed:
            work.turn()
    return work, [(line["event"], line.get("reader", line.get("files", line.get("reason")))) for line in lines]


def test_what_went_is_summed_and_a_turn_without_any_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, said = turns(tmp_path, monkeypatch, Removed(2, 300), Removed(), Removed(1, 50))
    assert (work.removed_files, work.removed_bytes) == (3, 350)
    assert said == [("removed relay files", 2), ("removed relay files", 1)]


def test_why_nothing_goes_by_age_is_said_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = turns(tmp_path, monkeypatch, Removed(blocked_by="the clock"), Removed(blocked_by="the clock"), Removed())
    assert said == [("removal by age waits", "the clock"), ("removal by age goes on", "")]


def test_readers_that_lost_files_are_named_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"r{number}" for number in range(MAX_DROPPED_NAMES + 1))
    work, said = turns(tmp_path, monkeypatch, Removed(dropped_readers=names, expired_readers=("old",)))
    assert said[0] == ("reader forgotten", "old")
    assert said[1:] == [("reader dropped", name) for name in names]
    assert (work.dropped, work.dropped_readers) == (len(names), names[1:])


def test_an_empty_log_loses_nothing(tmp_path: Path) -> None:
    work = Retaining(DaemonConfig.parse({"user": "repl", "relay_dir": str(tmp_path)}), tmp_path, structlog.get_logger())
    work.turn()
    assert (work.removed_files, work.dropped_readers) == (0, ())
