"""End to end into Spark: relay log on disk, our source, noop, Parquet and Delta sinks; against two others.

ready-made  a source that hands batches like ours to Spark from memory, without making them (ready_made.py): the ceiling
client      python-mysql-replication feeding createDataFrame, a DataFrame a batch, noop sink (spark_peer.py)

For each workload and row shape: the relay log is filled first, then both sources run in turn in one session, on two
cores, or with `--cores 1` on one, with the same schema, rows, batches, partitions a micro-batch and micro-batches,
after a run of each that warms up.
Wanted, for noop: 0.75 of the ready-made source's rate or more, and 50 times the client's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import DayTimeIntervalType, StructType

from replica.live.embedded import EmbeddedReplica
from replica.options.config import ReplicaConfig
from streaming_source.source.data_source import MariaDbBinlogSource
from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.ready_made import NAME as READY_MADE
from tools.bench.kit.ready_made import write_partition
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, ROOT, UNIX_SOCKETS, Run, drain, open_session
from tools.bench.kit.workloads import BLOB, DATABASE, OPTIONS, WORKLOADS, binlog
from tools.bench.spark.spark_peer import peer_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

WANTED = 0.75
WANTED_OF_CLIENT = 50.0
TRIGGER_BYTES = 64 << 20  # maxBytesPerTrigger's default
ONE_FILE = 16 << 30  # of the relay log, which stays: what is committed goes by whole files
FILL_TIMEOUT_S = 600.0
KINDS = ("ready-made", "source")
TABLES = {workload.name: workload for workload in (*WORKLOADS.values(), BLOB)}
SHAPES = ("envelope", "flat", "variant")
SINKS = ("noop", "parquet", "delta")
DEFAULT_SINKS = ("noop",)  # the others write files, and take an hour for all workloads
JARS = ROOT / ".cache" / "jars"
BINLOG = "bin.000001"


def serve(server: MariaDb, path: Path, columns: str) -> None:
    """Make the server's binlog this file, and its catalog know the table, as python-mysql-replication asks for it."""
    server.sql("SET sql_log_bin = 0", f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.t ({columns})")
    server.stop()
    for old in server.datadir.glob("bin.*"):
        old.unlink()
    shutil.copyfile(path, server.datadir / BINLOG)
    (server.datadir / "bin.index").write_text(f"./{BINLOG}\n", encoding="ascii")
    server.start()


@dataclass
class Extent:
    """How much one source hands to Spark, and the other has to imitate: partitions a micro-batch, micro-batches."""

    partitions: int
    triggers: int


def fill_relay(server: MariaDb, folder: Path) -> int:
    """The server's whole binlog into a relay log; its bytes."""
    config = ReplicaConfig(
        host=(server.host,),
        port=server.port,
        user=server.user,
        password=server.password,
        relay_max_file_bytes=ONE_FILE,
    )
    with EmbeddedReplica(config, folder) as replica:
        replica.start(replica.earliest_position())
        if not replica.wait_for(replica.server_position(), FILL_TIMEOUT_S):
            raise SystemExit(f"the relay log was not filled within {FILL_TIMEOUT_S:.0f} s")
    return sum(path.stat().st_size for path in folder.iterdir())


def sample(options: dict[str, str], folder: Path) -> Extent:
    """Plan the query as Spark would; keep the batches of its first micro-batch."""
    source = MariaDbBinlogSource(options)
    reader = source.streamReader(source.schema())
    planned = []
    try:
        reader.prepareForTriggerAvailableNow()
        limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
        reader.latestOffset(start, limit)  # the anchor batch
        while (end := reader.latestOffset(start, limit)) != start:
            planned.append(list(reader.partitions(start, end)))
            start = end
    finally:
        reader.stop()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the reader answers it as Spark's source process would
    for number, partition in enumerate(planned[0]):
        write_partition(reader.read(partition), folder, number)
    return Extent(len(planned[0]), len(planned))


class Comparison:
    """One workload in one shape, served by a running server, in a folder of its own."""

    def __init__(
        self,
        spark: SparkSession,
        server: MariaDb,
        shape: str,
        relay: Path,
        folder: Path,
        *,
        trigger_bytes: int = TRIGGER_BYTES,
    ) -> None:
        self._folder = str(folder)
        options = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "relayDir": str(relay),
            "relayMaxFileBytes": str(ONE_FILE),
            "maxBytesPerTrigger": str(trigger_bytes),
            "startingPosition": "earliest",
            **({"tables": f"{DATABASE}.t"} if shape == "variant" else {"table": f"{DATABASE}.t", "rowShape": shape}),
        }
        self.extent = sample(options, folder)
        ours = spark.readStream.format("mariadb-binlog").options(**options).load()
        imitation = {
            "folder": str(folder),
            "schema": ours.schema.json(),
            "partitions": str(self.extent.partitions),
            "triggers": str(self.extent.triggers),
        }
        ready = spark.readStream.format(READY_MADE).options(**imitation).load()
        self._changes = {"ready-made": ready, "source": ours}

    @property
    def image(self) -> StructType:
        """The table's columns; of the envelope shape."""
        kind = self._changes["source"].schema["after"].dataType
        assert isinstance(kind, StructType)
        return kind

    def runs(self, sink: str, repeats: int) -> dict[str, list[Run]]:
        """One more of each comes before: the JVM compiles a sink's code in the first minute that it is used. It goes on
        doing so, and who comes later has the warmer one: so they take turns in coming first.
        """
        changes = {kind: _storable(rows) if sink == "delta" else rows for kind, rows in self._changes.items()}
        made: dict[str, list[Run]] = {kind: [] for kind in KINDS}
        for turn in range(1 + repeats):
            for kind in KINDS if turn % 2 else reversed(KINDS):
                run = drain(changes[kind], self._folder, sink)
                if turn:
                    made[kind].append(run)
        return made


def _storable(changes: DataFrame) -> DataFrame:
    """Delta has no intervals, which TIME columns are: text instead, for both sources."""
    for image in changes.schema.fields:
        if isinstance(image.dataType, StructType):
            for field in image.dataType.fields:
                if isinstance(field.dataType, DayTimeIntervalType):
                    text = f.col(image.name)[field.name].cast("string")
                    changes = changes.withColumn(image.name, f.col(image.name).withField(field.name, text))
        elif isinstance(image.dataType, DayTimeIntervalType):
            changes = changes.withColumn(image.name, f.col(image.name).cast("string"))
    return changes


def summary(workload: str, shape: str, sink: str, row_bytes: float, runs: dict[str, list[Run]]) -> dict[str, Any]:
    rate = {kind: statistics.median(run.rate for run in made) for kind, made in runs.items()}
    cost = {kind: statistics.median(run.cpu_per_row for run in made) for kind, made in runs.items()}
    python = {kind: statistics.median(run.python_per_row for run in made) for kind, made in runs.items()}
    return {
        "workload": workload,
        "shape": shape,
        "sink": sink,
        "rows": runs["source"][0].all_rows,
        "rows_per_second": {kind: round(value) for kind, value in rate.items()},
        "mb_per_second": {kind: round(value * row_bytes / 1e6, 1) for kind, value in rate.items()},
        "cpu_us_per_row": {kind: round(value * 1e6, 3) for kind, value in cost.items()},
        "python_cpu_us_per_row": {kind: round(value * 1e6, 3) for kind, value in python.items()},
        "ratio": round(rate["source"] / rate["ready-made"], 3),
        "cpu_ratio": round(cost["ready-made"] / cost["source"], 3),
    }


def measure(
    spark: SparkSession, server: MariaDb, workload: str, options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    results = []
    client = None
    size = fill_relay(server, folder / "relay")
    for shape in options.shape or SHAPES:
        batches = folder / shape
        batches.mkdir()
        comparison = Comparison(spark, server, shape, folder / "relay", batches)
        for sink in options.sink or DEFAULT_SINKS:
            if sink != "noop" and shape == "flat" and not options.shape:
                continue  # the shapes differ in what reading costs; sinks take the typed envelope, and VARIANT
            repeats = options.repeats if sink == "noop" else 1
            runs = comparison.runs(sink, repeats)
            results.append(summary(workload, shape, sink, size / runs["source"][0].all_rows, runs))
            print(_line(results[-1]), flush=True)
        if shape == "envelope" and options.client_seconds:
            client = peer_rate(spark, server, comparison.image, options.client_seconds)
            print(f"{workload:6} client   {client:9,.0f} rows/s", flush=True)
        shutil.rmtree(batches)
    for result in results:
        if client and result["sink"] == "noop" and result["shape"] != "flat":  # there an update is two rows
            result["client_rows_per_second"] = round(client)
            result["ratio_of_client"] = round(result["rows_per_second"]["source"] / client, 1)
    return results


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench spark", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--megabytes", type=int, default=600, help="binlog of each workload (10^6 bytes)")
    parser.add_argument(
        "--repeats", type=int, default=2, help="of the noop runs (other sinks: one), after one that warms up"
    )
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--workload", action="append", choices=list(TABLES), help="repeatable; default all")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="repeatable; default all")
    parser.add_argument("--sink", action="append", choices=SINKS, help="repeatable; default noop")
    parser.add_argument("--client-seconds", type=float, default=6.0, help="how long the client runs; 0 leaves it out")
    parser.add_argument("--cores", type=int, choices=(1, 2), default=2, help="for tasks, and all of Spark's processes")
    parser.add_argument("--jars", type=Path, default=JARS, help="folder with Delta's jars")
    options = parser.parse_args(argv)
    started = time.monotonic()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    jars = sorted(options.jars.glob("*delta-*.jar"))
    if not jars and "delta" in (options.sink or DEFAULT_SINKS):
        print(f"NO DELTA: there are no jars of it in {options.jars}.", flush=True)
        options.sink = [sink for sink in options.sink or DEFAULT_SINKS if sink != "delta"]
    jars = jars if "delta" in (options.sink or DEFAULT_SINKS) else []
    spark = open_session(UNIX_SOCKETS | PLAIN_CHECKPOINTS, jars, cores=options.cores)
    results = []
    try:
        for workload in options.workload or TABLES:
            path = binlog(workload, options.megabytes, version=options.server)
            with (
                MariaDb(options.server, *OPTIONS) as server,
                tempfile.TemporaryDirectory(prefix="bench-spark-") as folder,
            ):
                serve(server, path, TABLES[workload].columns)
                results += measure(spark, server, workload, options, Path(folder))
    finally:
        spark.stop()
    met = _verdict(results)
    print(f"{time.monotonic() - started:.0f} s, {options.cores} cores, load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        print(json.dumps({"benchmark": "spark", "met": met, "wanted": WANTED, "results": results}))
    return 0


def _verdict(results: list[dict[str, Any]]) -> bool:
    judged = [result for result in results if result["sink"] == "noop"]
    below = [r for r in judged if r["ratio"] < WANTED or r.get("ratio_of_client", WANTED_OF_CLIENT) < WANTED_OF_CLIENT]
    for result in judged:
        if "ratio_of_client" in result:
            print(f"{result['workload']:6} {result['shape']:8} {result['ratio_of_client']:.0f} x the client")
    for result in below:
        print(f"{result['workload']} {result['shape']}: BELOW what is wanted ({WANTED}, {WANTED_OF_CLIENT:.0f} x)")
    return not below


def _line(result: dict[str, Any]) -> str:
    rates, costs, python = (result[key] for key in ("rows_per_second", "cpu_us_per_row", "python_cpu_us_per_row"))
    parts = [f"{result['workload']:6} {result['shape']:8} {result['sink']:7}"]
    parts += [f"{kind} {rates[kind]:9,} rows/s {costs[kind]:6.2f} CPU us ({python[kind]:.2f} Python)" for kind in rates]
    parts.append(f"{result['mb_per_second']['source']:6.1f} MB/s")
    parts.append(f"ratio {result['ratio']:.2f}, by CPU {result['cpu_ratio']:.2f}")
    return "  ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
