"""Points of a micro-batch at which the soak kills: how they are detected from outside, and which one a kill hit.

In: the folders of a query's checkpoint and of its sink. Out: the moment at which a point is reached, and after the kill
the point that was hit, by the files on disk. Only the latter counts. Spark writes `offsets/N`, runs the tasks of batch
N (each writes a `part-…` file), adds N to the sink's own log, and writes `commits/N`. Each entry is a file that is
renamed to its final name, which inotify reports at once.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tools.proofs.soak.daemon.inotify import MOVED_TO, Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BEFORE_PLANNING = "before planning"
AFTER_OFFSETS = "after the offset log"
IN_A_TASK = "in a task"
BEFORE_COMMIT = "before the commit log"
AFTER_COMMIT = "after the commit log"
AT_RANDOM = "at random"
POINTS = (BEFORE_PLANNING, AFTER_OFFSETS, IN_A_TASK, BEFORE_COMMIT, AFTER_COMMIT)
MOMENT_TIMEOUT_S = 1200.0
"""For a point to be reached: a query starts in 5 s on a quiet machine, in two minutes where twenty share two cores.
A batch of the snapshot proof took more than five there."""
STALLED_S = 300.0
RANDOM_KILL_S = (0.0, 12.0)
WHOLE = 0.6
"""How often all processes of the application die at once, as with the machine; otherwise only the JVM is killed."""
_ENTRY = re.compile(r"(\d+)(?:\.compact|\.json)?")


class Progress(NamedTuple):
    """The last batch planned, entered in the sink's log, and committed; -1 if none."""

    planned: int
    written: int
    committed: int


@dataclass(frozen=True)
class QueryFolders:
    """Of one query, `kind` parquet or delta."""

    kind: str
    checkpoint: Path
    output: Path

    @property
    def sink_log(self) -> Path:
        return self.output / ("_spark_metadata" if self.kind == "parquet" else "_delta_log")

    @property
    def watched(self) -> tuple[Path, ...]:
        return self.checkpoint / "offsets", self.checkpoint / "commits", self.output, self.sink_log

    def make(self) -> None:
        """Spark would make them, at a moment when nobody could watch them yet."""
        for folder in self.watched:
            folder.mkdir(parents=True, exist_ok=True)

    def progress(self) -> Progress:
        written = max((batch for batch, _ in self._entries(self.sink_log)), default=-1)
        if self.kind == "delta":
            written = self._last_delta_batch()
        planned, committed = (
            max((batch for batch, _ in self._entries(self.checkpoint / name)), default=-1)
            for name in ("offsets", "commits")
        )
        return Progress(planned, written, committed)

    def committed_offset(self) -> dict[str, object]:
        """The end of the last committed batch; empty before the first."""
        batch = self.progress().committed
        if batch < 0:
            return {}
        offset: dict[str, object] = json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
        return offset

    def wrote_since(self, time_ns: int) -> bool:
        """Whether a file of the sink is that young: a task was at work."""
        return any(part.stat().st_mtime_ns >= time_ns for part in self.output.glob("part-*"))

    def planned_at(self, batch: int) -> int:
        return (self.checkpoint / "offsets" / str(batch)).stat().st_mtime_ns

    @staticmethod
    def _entries(folder: Path) -> list[tuple[int, Path]]:
        found = ((_ENTRY.fullmatch(path.name), path) for path in folder.iterdir())
        return [(int(match[1]), path) for match, path in found if match]

    def _last_delta_batch(self) -> int:
        for _, path in sorted(self._entries(self.sink_log), reverse=True):
            for line in path.read_text().splitlines():
                if "txn" in (action := json.loads(line)):
                    return int(action["txn"]["version"])
        return -1


def wait_for(point: str, query: QueryFolders, watch: Watch, *, skip: int, timeout_s: float) -> bool:
    """Return as soon as the point is reached for the (skip + 1)th time; False if it was not in time."""
    wanted = _RECOGNISED[point]
    for event in watch.events(timeout_s):
        if wanted(query, event.folder, event.name, event.kind == MOVED_TO):
            if skip == 0:
                return True
            skip -= 1
    return False


def point_hit(query: QueryFolders, before: Progress, started_ns: int) -> str:
    """Where in a micro-batch the query was when it was killed, by what it left.

    `before` and `started_ns`: its progress and the time when it was started. A batch that an earlier kill left behind
    is planned again, without a trace, and may be read again.
    """
    after = query.progress()
    if after == before:
        return IN_A_TASK if query.wrote_since(started_ns) else BEFORE_PLANNING
    if after.planned == after.committed:
        return AFTER_COMMIT
    if after.written >= after.planned:
        return BEFORE_COMMIT
    return IN_A_TASK if query.wrote_since(max(started_ns, query.planned_at(after.planned))) else AFTER_OFFSETS


_RECOGNISED: dict[str, Callable[[QueryFolders, Path, str, bool], bool]] = {
    AFTER_OFFSETS: lambda q, folder, name, moved: moved and folder == q.watched[0] and name.isdigit(),
    IN_A_TASK: lambda q, folder, name, _: folder == q.output and name.startswith("part-"),
    BEFORE_COMMIT: lambda q, folder, name, moved: moved and folder == q.sink_log and bool(_ENTRY.fullmatch(name)),
    AFTER_COMMIT: lambda q, folder, name, moved: moved and folder == q.watched[1] and name.isdigit(),
}
