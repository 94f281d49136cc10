"""An application of its own process, for `scripts/bench start`: `python -m tools.bench.spark.start_application JSON`.

In: format, options, folder. It makes a session as Spark comes, loads, starts, and ends with the first row that
foreachBatch has. Out: the last line is a JSON list, for each of these phases its name, the seconds it took and the CPU
seconds of the JVM and of the Python processes in it.
"""

from __future__ import annotations

import time

BEGUN = time.time()

import json  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from tools.bench.kit.process_times import jvm_process, processes_below  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE_S = 300.0
SOURCES = {"mariadb-binlog": None, "steady-clock": "tools.bench.spark.clock_source"}
"""Formats, and the module that has the source where Spark does not find it."""


class Phases:
    """What each phase took, by the clock and in CPU seconds of this process and all below it."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []
        self._last = (BEGUN, 0.0, 0.0)

    def end(self, name: str, spark: SparkSession) -> None:
        root = jvm_process(spark)
        below = processes_below(root)
        jvm = below[root].own
        python = sum(sum(times) for times in below.values()) - jvm + time.process_time()
        now = (time.time(), jvm, python)
        wall, of_jvm, of_python = (after - before for before, after in zip(self._last, now, strict=True))
        self._last = now
        self.done.append({"phase": name, "wall": wall, "jvm_cpu": of_jvm, "python_cpu": of_python})


def run(source: str, options: dict[str, str], folder: str) -> list[dict[str, Any]]:
    """Go from the start of the process to the first row."""
    phases = Phases()
    from pyspark.sql import SparkSession  # noqa: PLC0415  (an import is part of the first phase)

    builder = SparkSession.builder.master("local[2]").appName("bench start")
    for key, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    phases.end("session", spark)
    if SOURCES[source] is not None:
        from tools.bench.spark.clock_source import ClockSource  # noqa: PLC0415

        spark.dataSource.register(ClockSource)
    changes = spark.readStream.format(source).options(**options).load()
    phases.end("load()", spark)
    seen = threading.Event()

    def collect(batch: DataFrame, _number: int) -> None:
        if batch.select("after.id").take(1):
            seen.set()

    writer = changes.writeStream.foreachBatch(collect).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.start()
    phases.end("start()", spark)
    deadline = time.time() + PATIENCE_S
    while not seen.wait(0.002):
        if query.exception() is not None:
            raise SystemExit(f"the query ended: {query.exception()}")
        if time.time() > deadline:
            raise SystemExit(f"no row within {PATIENCE_S:.0f} s")
    phases.end("first row", spark)
    query.stop()
    spark.stop()
    return phases.done


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
