"""CPU time of Spark's JVM and of the processes below it, as the kernel counts them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def spark_cpu_seconds(spark: Any) -> tuple[float, float]:
    """CPU seconds so far: of the session's JVM, and of all processes below it, those that have ended included."""
    stats: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            stats[int(entry.name)] = [int(fields[1]), *map(int, fields[11:15])]
    root = spark.sparkContext._gateway.proc.pid
    below = {root}
    while more := {process for process, stat in stats.items() if stat[0] in below} - below:
        below |= more
    everything = sum(sum(stats[process][1:]) for process in below if process in stats)
    jvm = sum(stats[root][1:3])
    return jvm / TICKS_A_SECOND, (everything - jvm) / TICKS_A_SECOND
