"""Notice when the wall clock stepped forward, also between two processes: age by a stepped clock means nothing.

In: wall clock and monotonic clock, at each tick. Out: whether a step lies less than so many seconds back, counted by
the monotonic clock while this ran. What is known is kept in `relay.clock`, written now and then without fsync: a power
cut or a full disk may lose it, and then the next process takes the time as it is.
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Final

from replica.relay_log.directory.disk import replace_file

if TYPE_CHECKING:
    from pathlib import Path

CLOCK_NAME: Final = "relay.clock"
MAX_STEP_S: Final = 3600.0
"""Less than this costs at most an hour of retention. A pause of the program that is longer is taken for a step too."""
_WRITE_EVERY_S: Final = 60.0  # far less than a step


class SteppedClock:
    """A watch on the clock. `last_step` says when and how far, for a log; empty before there was one."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / CLOCK_NAME
        self._wall_s, self._since_step_s, self.last_step = _read(self._path)
        self._monotonic_s: float | None = None
        self._write_at_s = -math.inf

    def tick(self, wall_s: float, monotonic_s: float) -> None:
        passed_s = 0.0 if self._monotonic_s is None else monotonic_s - self._monotonic_s
        step_s = 0.0 if self._wall_s is None else wall_s - self._wall_s - passed_s
        self._since_step_s += passed_s
        if step_s > MAX_STEP_S:
            self._since_step_s = 0.0
            self._write_at_s = -math.inf
            self.last_step = f"the clock went {step_s:.0f} s ahead of the time that passed, at {wall_s:.0f}"
        self._wall_s, self._monotonic_s = wall_s, monotonic_s
        if monotonic_s >= self._write_at_s:
            self._write_at_s = monotonic_s + _WRITE_EVERY_S
            with contextlib.suppress(OSError):  # who removes files next says what is wrong with the folder
                self._write(wall_s)

    def stepped_within(self, seconds: float) -> bool:
        return self._since_step_s < seconds

    def _write(self, wall_s: float) -> None:
        since = None if math.isinf(self._since_step_s) else self._since_step_s
        replace_file(self._path, json.dumps({"wall": wall_s, "since_step": since, "step": self.last_step}).encode())


def _read(path: Path) -> tuple[float | None, float, str]:
    try:
        content = json.loads(path.read_bytes())
        since = content["since_step"]
        return float(content["wall"]), math.inf if since is None else float(since), str(content["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, math.inf, ""  # the first time here, or torn
