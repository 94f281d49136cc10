"""CPU time of Spark's JVM and of the processes below it, and memory of a process, as the kernel counts them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Times(NamedTuple):
    """CPU seconds of a process, and of its children that have ended."""

    own: float
    ended: float


def peak_bytes(process: int | str = "self") -> int:
    """Return the largest resident size of a process since its program began; 0 if it has ended.

    `getrusage` would count the process that started it, too: a fork has its parent's pages until it runs a program.
    """
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def jvm_process(spark: Any) -> int:
    """The process id of the session's JVM."""
    return int(spark.sparkContext._gateway.proc.pid)


def processes_below(root: int) -> dict[int, Times]:
    """A process and all below it that live, by process id."""
    parents, times = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(entry.name)] = int(fields[1])
            user, system, ended_user, ended_system = (int(field) / TICKS_A_SECOND for field in fields[11:15])
            times[int(entry.name)] = Times(user + system, ended_user + ended_system)
    below = {root}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return {process: times[process] for process in below if process in times}
