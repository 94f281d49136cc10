"""Points of a batch at which the mirror's soak kills, and the point that a kill hit, by the files on disk.

In: the folders of a lake and of a checkpoint. Out: whether a file was written since a time, and after a kill the point
that the batch had reached. A data file that no commit names belongs to an interrupted write. The write was a MERGE if
the table was completely delivered when the batch began and no DDL replaces its rows. Otherwise it may have been an
append. If a target has a commit of a batch and the control table does not, the target was written before other targets
of the batch.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from replica.snapshot.frontier import Frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from replica.schema.known_tables import TableName

IN_A_WRITE = "inside a write that may be an append"
IN_A_MERGE = "inside a MERGE"
IN_A_BATCH = "between the targets of a batch"
ELSEWHERE = "elsewhere"
AIMS = (IN_A_WRITE, IN_A_MERGE, IN_A_BATCH, ELSEWHERE)
LONGEST_WAIT_S = 900.0
"""For a first write: on a busy machine Spark takes minutes to start, and a kernel may have to be compiled."""
POLL_S = 0.03
CHECK_S = 2.0
CONTROL = "mirror_control"


class LakeFile(NamedTuple):
    """A data file of a target, and the table that the target is of."""

    table: TableName
    name: str


class LakeFiles:
    """The files of a lake, read without Spark."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._read: dict[Path, tuple[frozenset[str], int | None]] = {}

    def data(self) -> frozenset[LakeFile]:
        """Return all data files of targets."""
        found: set[LakeFile] = set()
        for target in self._targets():
            for _, folders, names in os.walk(target):
                if "_delta_log" in folders:
                    folders.remove("_delta_log")
                found.update(LakeFile(_table(target), name) for name in names if name.endswith(".parquet"))
        return frozenset(found)

    def commits(self) -> frozenset[Path]:
        """Return the files of all commits of targets."""
        return frozenset(file for target in self._targets() for file in _log(target))

    def loose(self) -> frozenset[LakeFile]:
        """Return the data files that no commit names."""
        there = self.data()
        return there - {
            LakeFile(_table(target), name)
            for target in self._targets()
            for file in _log(target)
            for name in self._entry(file)[0]
        }

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


def _table(target: Path) -> TableName:
    return target.parent.name, target.name


def _log(target: Path) -> list[Path]:
    return [file for file in (target / "_delta_log").glob("*.json") if file.stem.isdigit()]


class Merging:
    """Which tables the newest batch of a checkpoint brings into their targets by a MERGE.

    `replaced`: the tables whose rows a statement may put others into the place of.
    """

    def __init__(self, checkpoint: Path, replaced: Collection[TableName]) -> None:
        self._offsets = checkpoint / "offsets"
        self._replaced = frozenset(replaced)

    def any(self, files: Collection[LakeFile]) -> bool:
        """Tell whether one of these files, written by the newest batch, is of a MERGE."""
        numbers = sorted(int(file.name) for file in self._offsets.glob("*") if file.name.isdigit())
        if len(numbers) < 2:  # all tables are read with the first batch
            return False
        begin, end = (self._offset(number) for number in numbers[-2:])
        frontier = Frontier.parse(begin["snapshot"]) if "snapshot" in begin else Frontier(done=True)
        asked = {tuple(name) for name in end.get("asked", {}).get("tables", ())}
        return any(
            file.table not in self._replaced and file.table not in asked and frontier.reached(file.table) is None
            for file in files
        )

    def _offset(self, number: int) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self._offsets / str(number)).read_text(encoding="utf-8").splitlines()[-1])
        return told


def reach(aim: str, files: LakeFiles, merging: Merging, *, skip: int, wait_s: float, check: Callable[[], None]) -> None:
    """Return at the point that is aimed at, the (skip + 1)th time it comes; `check` raises if it cannot come."""
    looks: dict[str, Callable[[], frozenset[Any]]] = {
        IN_A_WRITE: files.data,
        IN_A_MERGE: files.data,
        IN_A_BATCH: files.commits,
    }
    look = looks.get(aim)
    if look is None:
        time.sleep(wait_s)
        return
    seen, left = look(), skip
    began = checked = time.monotonic()
    while True:
        time.sleep(POLL_S)
        new = look() - seen
        seen |= new
        if new and (aim != IN_A_MERGE or merging.any(new)):
            if not left:
                return
            left -= 1
        if time.monotonic() - checked > CHECK_S:
            check()
            checked = time.monotonic()
            assert checked - began < LONGEST_WAIT_S, f"nothing was written for {LONGEST_WAIT_S:.0f} s ({aim})"


def point_hit(files: LakeFiles, before: frozenset[LakeFile], merging: Merging) -> str:
    """Return where a kill hit; `before`: the loose files that earlier kills left."""
    if loose := files.loose() - before:
        return IN_A_MERGE if merging.any(loose) else IN_A_WRITE
    return IN_A_BATCH if files.ahead() else ELSEWHERE
