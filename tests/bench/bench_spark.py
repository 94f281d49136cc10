"""End to end into Spark: relay log on disk, our source, noop sink; against batches that are ready-made (ready_made.py).

For each workload and row shape: the relay log is filled first, then both sources run in turn in one session, local[2],
with the same schema, rows a batch, partitions a micro-batch and micro-batches. Rows a second are rows over the time of
the triggers that had rows; CPU seconds are those of the JVM and all its Python processes. One run warms up. Wanted:
0.6 of the ready-made source's rate or more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from replica.config import ReplicaConfig
from replica.embedded import EmbeddedReplica
from streaming_source.cutting import PARTITION_BYTES
from streaming_source.load import load_plan
from streaming_source.partition import RelayRange
from streaming_source.reader import read_changes
from tests.bench.bench_decode import serve
from tests.bench.ready_made import NAME as READY_MADE
from tests.bench.ready_made import ReadyMadeSource, write_batch
from tests.bench.workloads import DATABASE, OPTIONS, WORKLOADS, binlog
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

WANTED = 0.6
TRIGGER_BYTES = 64 << 20
FILL_TIMEOUT_S = 600.0
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@dataclass
class Run:
    rows: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@dataclass
class Extent:
    """How much one source hands to Spark: what the other has to imitate."""

    rows: int
    batch_rows: int
    partitions: int
    triggers: int


def open_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").appName("mariadb-binlog bench")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ReadyMadeSource)
    return spark


def _stat(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def tree_cpu_seconds() -> float:
    """CPU time of this process's descendants: the JVM, its Python daemons, workers and planners, living and reaped."""
    stats = {int(p.name): _stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    family, ticks = {os.getpid()}, 0
    pending = True
    while pending:
        pending = False
        for process, stat in stats.items():
            if stat and process not in family and int(stat[1]) in family:
                family.add(process)
                ticks += sum(map(int, stat[11:15]))
                pending = True
    return ticks / os.sysconf("SC_CLK_TCK")


def drain(changes: DataFrame, folder: str) -> Run:
    before = tree_cpu_seconds()
    checkpoint = tempfile.mkdtemp(dir=folder)
    writer = changes.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    triggers = [p for p in query.recentProgress if p["numInputRows"]]
    seconds = sum(p["durationMs"]["triggerExecution"] for p in triggers) / 1000
    return Run(sum(p["numInputRows"] for p in triggers), seconds, tree_cpu_seconds() - before)


def fill_relay(server: MariaDb, folder: Path) -> str:
    """The server's whole binlog into a relay log; the position it starts at."""
    config = ReplicaConfig(host=(server.host,), port=server.port, user=server.user, password=server.password)
    with EmbeddedReplica(config, folder) as replica:
        start = replica.earliest_position()
        replica.start(start)
        if not replica.wait_for(replica.server_position(), FILL_TIMEOUT_S):
            raise SystemExit(f"the relay log was not filled within {FILL_TIMEOUT_S:.0f} s")
    return str(start)


def sample(options: dict[str, str], folder: Path, relay: Path) -> Extent:
    """Write one full batch of the real source's to a file, and count what it hands out altogether."""
    plan = load_plan(options)
    with EmbeddedReplica(ReplicaConfig(user="nobody"), relay) as replica:
        log = replica.log
    head = log.head()
    assert head is not None, "the relay log was filled before"
    first = log.locate(log.first_position())
    ranges = log.ranges(first, head.location, PARTITION_BYTES)
    rows, batch = 0, None
    for part in ranges:
        for made in read_changes(RelayRange(part.path, part.start, part.end, part.checksum), plan):
            rows += made.num_rows
            if batch is None:
                # The next batch overwrites the buffers of this one.
                batch = pa.ipc.read_record_batch(made.serialize(), made.schema)
    if batch is None:
        raise SystemExit("the workload has no rows")
    write_batch(batch, folder / "batch.arrow")
    triggers = max(1, -(-sum(r.end - r.start for r in ranges) // TRIGGER_BYTES))
    return Extent(rows, batch.num_rows, max(1, len(ranges) // triggers), triggers)


def compare(spark: SparkSession, server: MariaDb, workload: str, shape: str, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as name:
        folder, relay = Path(name), Path(name) / "relay"
        options = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "table": f"{DATABASE}.t",
            "rowShape": shape,
            "relayDir": str(relay),
            "maxBytesPerTrigger": str(TRIGGER_BYTES),
            "startingPosition": "earliest",
        }
        fill_relay(server, relay)
        extent = sample(options, folder, relay)
        ours = spark.readStream.format("mariadb-binlog").options(**options).load()
        batches = max(1, round(extent.rows / extent.batch_rows / extent.partitions / extent.triggers))
        imitation = {
            "file": str(folder / "batch.arrow"),
            "schema": ours.schema.json(),
            "batches": str(batches),
            "partitions": str(extent.partitions),
            "triggers": str(extent.triggers),
        }
        ready = spark.readStream.format(READY_MADE).options(**imitation).load()
        drain(ready, name), drain(ours, name)
        runs: dict[str, list[Run]] = {"ready-made": [], "source": []}
        for _ in range(repeats):
            runs["ready-made"].append(drain(ready, name))
            runs["source"].append(drain(ours, name))
    rate = {kind: statistics.median(run.rate for run in made) for kind, made in runs.items()}
    cost = {kind: statistics.median(run.cpu_seconds / run.rows for run in made) for kind, made in runs.items()}
    return {
        "workload": workload,
        "shape": shape,
        "rows": extent.rows,
        "batch_rows": extent.batch_rows,
        "partitions": extent.partitions,
        "triggers": extent.triggers,
        "rows_per_second": {kind: round(value) for kind, value in rate.items()},
        "cpu_us_per_row": {kind: round(value * 1e6, 3) for kind, value in cost.items()},
        "ratio": round(rate["source"] / rate["ready-made"], 3),
        "cpu_ratio": round(cost["ready-made"] / cost["source"], 3),
        "wanted": WANTED,
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench spark", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--megabytes", type=int, default=300, help="binlog of each workload (10^6 bytes)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="repeatable; default narrow, bulk")
    parser.add_argument("--shape", action="append", choices=["envelope", "flat"], help="repeatable; default both")
    options = parser.parse_args(argv)
    started = time.monotonic()
    spark = open_session()
    results = []
    try:
        for workload in options.workload or ["narrow", "bulk"]:
            path = binlog(workload, options.megabytes, version=options.server)
            with MariaDb(options.server, *OPTIONS) as server:
                serve(server, path, WORKLOADS[workload].columns)
                for shape in options.shape or ["envelope", "flat"]:
                    results.append(compare(spark, server, workload, shape, options.repeats))
                    print(_line(results[-1]), flush=True)
    finally:
        spark.stop()
    met = all(result["ratio"] >= WANTED for result in results)
    print(f"wanted ratio {WANTED} {'reached' if met else 'NOT reached'}; {time.monotonic() - started:.0f} s")
    if options.json:
        print(json.dumps({"benchmark": "spark", "met": met, "results": results}))
    return 0


def _line(result: dict[str, Any]) -> str:
    rates, costs = result["rows_per_second"], result["cpu_us_per_row"]
    parts = [f"{result['workload']:6} {result['shape']:8} {result['rows']:9,} rows"]
    parts += [f"{kind} {rates[kind]:9,} rows/s {costs[kind]:5.2f} CPU us" for kind in rates]
    parts.append(f"ratio {result['ratio']:.2f} (wanted {WANTED}), by CPU {result['cpu_ratio']:.2f}")
    return "  ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
