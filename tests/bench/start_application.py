"""An application of its own process, for `scripts/bench start`: `python -m tests.bench.start_application JSON`.

In: format, options, folder. It makes a session as Spark comes, loads, starts, and ends with the first row that
foreachBatch has. Out: the last line is a JSON list, for each of these phases its name, the seconds it took and the CPU
seconds of the JVM and of the Python processes in it.
"""

from __future__ import annotations

import time

BEGUN = time.time()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PATIENCE_S = 300.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
SOURCES = {"mariadb-binlog": None, "steady-clock": "tests.bench.clock_source"}
"""Formats, and the module that has the source where Spark does not find it."""


class Phases:
    """What each phase took, by the clock and in CPU seconds of this process and all below it."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self._last = (BEGUN, 0.0, 0.0)

    def end(self, name: str) -> None:
        jvm, python = _cpu_seconds()
        now = (time.time(), jvm, python)
        wall, of_jvm, of_python = (after - before for before, after in zip(self._last, now, strict=True))
        self._last = now
        self.done.append({"phase": name, "wall": wall, "jvm_cpu": of_jvm, "python_cpu": of_python})


def _cpu_seconds() -> tuple[float, float]:
    """CPU seconds so far: of the JVM, and of all Python processes, those that ended included, with what they started."""
    stats: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stats[int(entry.name)] = (entry / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
    own = os.getpid()
    below = {own}
    while more := {process for process, stat in stats.items() if int(stat[1]) in below} - below:
        below |= more
    everything = sum(sum(map(int, stats[process][11:15])) for process in below)
    jvm = sum(int(stats[p][11]) + int(stats[p][12]) for p in below if int(stats[p][1]) == own)
    return jvm / TICKS_A_SECOND, (everything - jvm) / TICKS_A_SECOND


def run(source: str, options: dict[str, str], folder: str) -> list[dict[str, Any]]:
    """Go from the start of the process to the first row."""
    phases = Phases()
    from pyspark.sql import SparkSession  # noqa: PLC0415  (an import is part of the first phase)

    builder = SparkSession.builder.master("local[2]").appName("bench start")
    for key, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    phases.end("session")
    if SOURCES[source] is not None:
        from tests.bench.clock_source import ClockSource  # noqa: PLC0415

        spark.dataSource.register(ClockSource)
    changes = spark.readStream.format(source).options(**options).load()
    phases.end("load()")
    seen = threading.Event()

    def collect(batch: DataFrame, _number: int) -> None:
        if batch.select("after.id").take(1):
            seen.set()

    writer = changes.writeStream.foreachBatch(collect).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.start()
    phases.end("start()")
    deadline = time.time() + PATIENCE_S
    while not seen.wait(0.002):
        if query.exception() is not None:
            raise SystemExit(f"the query ended: {query.exception()}")
        if time.time() > deadline:
            raise SystemExit(f"no row within {PATIENCE_S:.0f} s")
    phases.end("first row")
    query.stop()
    spark.stop()
    return phases.done


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
