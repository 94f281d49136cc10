"""The process that is the driver of the Spark application we plan for, and whether a driver lives still.

Spark plans a batch read in a Python process that it starts and ends as it likes; what must live as long as the driver
is told by the driver's Java process, our nearest ancestor of that kind. Process ids are used again, so the time at
which the process was started belongs to it. Where the system does not tell (no /proc), every driver is taken for alive.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

MAX_ANCESTORS: Final = 10
"""Between the driver and us are one or two processes; a shell or two more in tests."""


class DriverProcess(NamedTuple):
    """A driver process. `started` is in the system's own ticks since it was booted; 0 where it does not tell."""

    pid: int
    started: int


class _Process(NamedTuple):
    name: str
    parent: int
    started: int


def this_driver() -> DriverProcess:
    """Return the Java process above us; without one, our parent."""
    pid = os.getppid()
    for _ in range(MAX_ANCESTORS):
        found = _process(pid)
        if found is None:
            break
        if found.name == "java":
            return DriverProcess(pid, found.started)
        pid = found.parent
    parent = _process(os.getppid())
    return DriverProcess(os.getppid(), parent.started if parent else 0)


def lives(driver: DriverProcess) -> bool:
    """Tell whether that very process is still there."""
    if not driver.started or _process(os.getpid()) is None:
        return True
    found = _process(driver.pid)
    return found is not None and found.started == driver.started


def _process(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets too.
    name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return _Process(name, int(fields[1]), int(fields[19]))
