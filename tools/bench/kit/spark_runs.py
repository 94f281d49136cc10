"""What the Spark benchmarks share: a session, a streaming query drained into a sink, and the CPU time it took.

Rows a second are rows over the time of the triggers that had rows, without the first, in which a replica logs in, and
the last, which is a remainder. CPU seconds are those of the same stretch of time, of the JVM and of all its Python
processes, sampled: starting a query costs about two CPU seconds, once, and is no matter of rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from pyspark.sql import SparkSession

from tests.fixtures.spark_home import spark_python
from tools.bench.kit.ready_made import ReadyMadeSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[3]
SAMPLE_S = 0.2
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
FEWEST_TRIGGERS = 5
"""With fewer there are not three between the first and the last, and one or two say little."""
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
PLAIN_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def open_session(settings: Mapping[str, str], jars: Sequence[Path] = (), *, cores: int = 2) -> SparkSession:
    """A session with tasks for so many cores; `jars` make Delta's sink known."""
    os.environ["PYSPARK_PYTHON"] = spark_python()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master(f"local[{cores}]").appName("mariadb-binlog bench")
    delta = DELTA | {"spark.jars": ",".join(map(str, jars))} if jars else {}
    for key, value in (QUIET | dict(settings) | delta).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ReadyMadeSource)
    return spark


class Cpu(NamedTuple):
    """Seconds of CPU time. `driver`: of this process, which the calls for foreachBatch run in."""

    jvm: float
    python: float
    driver: float = 0.0


class Peak(NamedTuple):
    """Largest resident size seen, in bytes: of the JVM, and of one of its Python processes."""

    jvm: int = 0
    python: int = 0


def _stat(process: int) -> tuple[str, list[str]]:
    """Return a process's program and the fields of its state; of none if it has ended."""
    try:
        program, _, fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return "", []
    return program.partition("(")[2], fields.split()


def _family() -> dict[int, tuple[bool, int, int]]:
    """Of this process's child, the JVM, and of the Python processes below it: whether it is the JVM, its ticks, and its
    resident pages. A server that is a child of this process, too, is no client.
    """
    stats = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    me = os.getpid()
    found: dict[int, tuple[bool, int, int]] = {}
    pending = True
    while pending:
        pending = False
        for process, (program, stat) in stats.items():
            if not stat or process in found:
                continue
            is_jvm = int(stat[1]) == me and program == "java"
            if is_jvm or int(stat[1]) in found:
                found[process] = is_jvm, int(stat[11]) + int(stat[12]), int(stat[21])
                pending = True
    return found


class CpuMeter:
    """Samples while it is open; then tells what a stretch of that time cost."""

    def __init__(self) -> None:
        self.peak = Peak()
        self._samples: list[tuple[float, Cpu]] = []
        self._ticks: dict[int, tuple[bool, int, int]] = {}  # of processes that have ended, too
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def between(self, start: float, end: float) -> Cpu:
        """Seconds of CPU time from one moment to another (seconds since 1970), interpolated."""
        first, last = self._at(start), self._at(end)
        return Cpu(*(behind - before for behind, before in zip(last, first, strict=True)))

    def _sample(self) -> None:
        while True:
            closing = self._closed.wait(SAMPLE_S)
            family = _family()
            self._ticks |= family
            jvm, python = (
                sum(ticks for is_jvm, ticks, _ in self._ticks.values() if is_jvm == wanted) / TICKS_A_SECOND
                for wanted in (True, False)
            )
            largest = (
                max((pages for is_jvm, _, pages in family.values() if is_jvm == wanted), default=0) * PAGE_BYTES
                for wanted in (True, False)
            )
            self.peak = Peak(*map(max, self.peak, largest))
            driver = time.process_time() - time.thread_time()  # all but this thread
            self._samples.append((time.time(), Cpu(jvm, python, driver)))
            if closing:
                return

    def _at(self, moment: float) -> Cpu:
        after = bisect_right(self._samples, moment, key=lambda sample: sample[0])
        after = min(max(after, 1), len(self._samples) - 1)
        (begin, low), (end, high) = self._samples[after - 1 : after + 1]
        part = min(max((moment - begin) / (end - begin), 0.0), 1.0)
        return Cpu(*(one + part * (other - one) for one, other in zip(low, high, strict=True)))


@dataclass
class Run:
    """The triggers of one query that count; `all_rows` are those of all triggers."""

    rows: int
    all_rows: int
    seconds: float
    cpu: Cpu

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def cpu_per_row(self) -> float:
        return (self.cpu.jvm + self.cpu.python) / self.rows

    @property
    def python_per_row(self) -> float:
        return self.cpu.python / self.rows


def drain(changes: DataFrame, folder: str, sink: str) -> Run:
    """Everything that is there now into a new sink, which is deleted again."""
    target = tempfile.mkdtemp(dir=folder)
    writer = changes.writeStream.format(sink).option("checkpointLocation", f"{target}/checkpoint")
    if sink != "noop":
        writer = writer.option("path", f"{target}/rows")
    with CpuMeter() as meter:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        time.sleep(SAMPLE_S)  # so that a sample lies behind the last trigger
    triggers = [p for p in query.recentProgress if p["numInputRows"]]
    all_rows = sum(p["numInputRows"] for p in triggers)
    if len(triggers) < FEWEST_TRIGGERS:
        raise SystemExit(f"{len(triggers)} micro-batches with rows measure the start of a query: take more megabytes")
    triggers = triggers[1:-1]
    shutil.rmtree(target)
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in triggers]
    first, last = (datetime.fromisoformat(triggers[n]["timestamp"]).timestamp() for n in (0, -1))
    rows = sum(p["numInputRows"] for p in triggers)
    return Run(rows, all_rows, sum(seconds), meter.between(first, last + seconds[-1]))
