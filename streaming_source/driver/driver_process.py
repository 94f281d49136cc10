"""The driver process of the Spark application, and the check whether it still runs.

Spark plans a batch read in a Python process that it may end at any time. Data that has to exist as long as the driver
is tied to the driver's Java process, the nearest Java ancestor. Process ids are reused, so a `DriverProcess` has the
start time too. On systems without /proc, every driver counts as running.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

MAX_ANCESTORS: Final = 10
"""Most ancestors to examine. One or two processes lie between the driver and this one, and a shell or two more in
tests.
"""


class DriverProcess(NamedTuple):
    """A driver process. `started`: its start in clock ticks after boot; 0 if the system does not report it."""

    pid: int
    started: int


class _Process(NamedTuple):
    name: str
    parent: int
    started: int


def this_driver() -> DriverProcess:
    """Return the nearest Java ancestor, or the parent process if there is none."""
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
    """Return True if that process still runs."""
    if not driver.started or _process(os.getpid()) is None:
        return True
    found = _process(driver.pid)
    return found is not None and found.started == driver.started


def _process(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may contain anything, also parentheses.
    name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return _Process(name, int(fields[1]), int(fields[19]))
