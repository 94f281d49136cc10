"""The points of a batch at which the mirror's soak kills, and which of them a kill hit, by the files that it left.

In: the folder of a lake. Out: whether something was written since; after a kill, where the batch was. A data file that
no commit names is of a write that was broken off: a MERGE, or an append where tables are still being read. A target
with a commit of a batch that the control table does not have was done before the others of the batch.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IN_A_WRITE = "inside a write, while tables were read"
IN_A_MERGE = "inside a MERGE"
IN_A_BATCH = "between the targets of a batch"
ELSEWHERE = "elsewhere"
AIMS = (IN_A_WRITE, IN_A_BATCH, ELSEWHERE)
"""What is aimed at: whether a write is a MERGE is seen behind it."""
LONGEST_WAIT_S = 900.0
"""For a first write: on a busy machine Spark takes minutes to start, and a kernel may have to be compiled."""
POLL_S = 0.03
CHECK_S = 2.0
CONTROL = "mirror_control"


class LakeFiles:
    """The files of a lake, read without Spark."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._read: dict[Path, tuple[frozenset[str], int | None]] = {}

    def data(self) -> frozenset[str]:
        """Return the names of all data files of targets."""
        found: set[str] = set()
        for target in self._targets():
            for _, folders, names in os.walk(target):
                if "_delta_log" in folders:
                    folders.remove("_delta_log")
                found.update(name for name in names if name.endswith(".parquet"))
        return frozenset(found)

    def commits(self) -> int:
        """Return how many commits all targets have."""
        return sum(1 for target in self._targets() for _ in _log(target))

    def loose(self) -> frozenset[str]:
        """Return the data files that no commit names."""
        there = self.data()
        return there - {name for target in self._targets() for file in _log(target) for name in self._entry(file)[0]}

    def done(self) -> int:
        """Return the last batch that the control table has rows of; -1 where it has none."""
        return self._newest(self._lake / CONTROL, with_rows=True)

    def ahead(self) -> list[str]:
        """Return the targets that have a commit of a batch that the control table does not have."""
        done = self.done()
        return sorted(str(target) for target in self._targets() if self._newest(target) > done)

    def _targets(self) -> Iterator[Path]:
        for folder in self._lake.glob("*/*"):
            if (folder / "_delta_log").is_dir():
                yield folder

    def _newest(self, target: Path, *, with_rows: bool = False) -> int:
        """Return the batch of the newest commit that tells one; -1 where none does."""
        for file in sorted(_log(target), reverse=True):
            names, batch = self._entry(file)
            if batch is not None and (names or not with_rows):
                return batch
        return -1

    def _entry(self, file: Path) -> tuple[frozenset[str], int | None]:
        """Return the data files that a commit adds, and its batch."""
        if file not in self._read:
            names, batch = set(), None
            for line in file.read_text(encoding="utf-8").splitlines():
                action: dict[str, Any] = json.loads(line)
                if "add" in action:
                    names.add(unquote(action["add"]["path"]).rpartition("/")[2])
                told = action.get("commitInfo", {}).get("userMetadata")
                batch = json.loads(told)["batch"] if told else batch
            self._read[file] = frozenset(names), batch
        return self._read[file]


def _log(target: Path) -> list[Path]:
    return [file for file in (target / "_delta_log").glob("*.json") if file.stem.isdigit()]


def reach(aim: str, files: LakeFiles, *, skip: int, wait_s: float, check: Callable[[], None]) -> None:
    """Return at the point that is aimed at, the (skip + 1)th time it comes; `check` raises if it cannot come."""
    looks = {IN_A_WRITE: files.data, IN_A_BATCH: files.commits}
    look = looks.get(aim)
    if look is None:
        time.sleep(wait_s)
        return
    seen, left = look(), skip
    began = checked = time.monotonic()
    while True:
        time.sleep(POLL_S)
        now = look()
        if now != seen:
            if not left:
                return
            seen, left = now, left - 1
        if time.monotonic() - checked > CHECK_S:
            check()
            checked = time.monotonic()
            assert checked - began < LONGEST_WAIT_S, f"nothing was written for {LONGEST_WAIT_S:.0f} s ({aim})"


def reads_tables(checkpoint: Path) -> bool:
    """Tell whether the newest batch may bring rows of tables that are being read: where it begins, some are left."""
    offsets = sorted((file for file in (checkpoint / "offsets").glob("*") if file.name.isdigit()), key=_number)
    if len(offsets) < 2:
        return True
    return "snapshot" in json.loads(offsets[-2].read_text(encoding="utf-8").splitlines()[-1])


def _number(file: Path) -> int:
    return int(file.name)


def point_hit(files: LakeFiles, before: frozenset[str], *, reading: bool) -> str:
    """Return where a kill hit; `before`: the loose files that earlier kills left, `reading`: see reads_tables()."""
    if files.loose() - before:
        return IN_A_WRITE if reading else IN_A_MERGE
    return IN_A_BATCH if files.ahead() else ELSEWHERE
