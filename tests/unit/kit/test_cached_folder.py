from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.cached_folder import cached_folder

if TYPE_CHECKING:
    from pathlib import Path

MAKERS = 4


def test_threads_that_make_it_at_once_get_one_folder_and_leave_no_other(tmp_path: Path) -> None:
    together = threading.Barrier(MAKERS)

    def fill(folder: Path) -> None:
        together.wait()
        (folder / "whole").write_text("yes", encoding="utf-8")

    with ThreadPoolExecutor(MAKERS) as threads:
        made = list(threads.map(lambda _: cached_folder(tmp_path / "cache" / "one", fill), range(MAKERS)))
    assert set(made) == {tmp_path / "cache" / "one"}
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["one"]
    assert (made[0] / "whole").read_text(encoding="utf-8") == "yes"
    assert cached_folder(made[0], pytest.fail) == made[0]


def test_what_cannot_be_filled_is_not_there(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cached_folder(tmp_path / "one", fill)
    assert not any(tmp_path.iterdir())
