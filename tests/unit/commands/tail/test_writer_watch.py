from __future__ import annotations

from typing import TYPE_CHECKING

from replica.commands.tail.command import CHECK_EVERY_S, WriterWatch
from replica.relay_log.directory.lock import RelayLock

if TYPE_CHECKING:
    from pathlib import Path


def test_it_says_when_the_writer_goes_and_comes(tmp_path: Path) -> None:
    said: list[str] = []
    now = [0.0]
    watch = WriterWatch(tmp_path, said.append, lambda: now[0])

    def look() -> list[str]:
        now[0] += CHECK_EVERY_S
        watch.check()
        found, said[:] = list(said), []
        return found

    with RelayLock(tmp_path):
        assert look() == []
    assert look() == [f"no process writes {tmp_path} now: no changes arrive until its replica runs again"]
    assert look() == []
    with RelayLock(tmp_path):
        watch.check()
        assert said == [], "too early to look again"
        assert look() == [f"{tmp_path} is written again"]


def test_a_directory_without_a_lock_has_no_writer(tmp_path: Path) -> None:
    said: list[str] = []
    WriterWatch(tmp_path / "nowhere", said.append).check()
    assert "no process writes" in said[0]
