"""How long after its COMMIT a row is seen in foreachBatch, under a steady stream of small transactions.

floor     a source without a relay log or decoder: rows are due at the same rate (clock_source.py). The server has the
          same writer beside it, whose rows no one reads, so that the machine has the same to do
embedded  the query runs its own replica
attached  the query reads the relay log of a `mariadb-replica run` beside the server

All run the same foreachBatch work, collecting the ids, with the same trigger: as soon as the batch before is done.
From the moment the client has the answer to its COMMIT to the moment foreachBatch has the row; p50 and p99. Settings:
plain is Spark as it comes; sockets adds spark.python.unix.domain.socket.enabled; files adds a checkpoint file manager
without the nine processes a batch that Spark starts for renaming files on a local disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb, wait_until
from tests.spark.daemons import Daemon
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, UNIX_SOCKETS, open_session
from tools.bench.kit.workloads import DATABASE
from tools.bench.spark.clock_source import NAME as CLOCK
from tools.bench.spark.clock_source import ClockSource, due_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

TABLE = f"{DATABASE}.t"
SETTINGS = {"plain": {}, "sockets": UNIX_SOCKETS, "files": UNIX_SOCKETS | PLAIN_CHECKPOINTS}
SOURCES = ("floor", "embedded", "attached")
CONNECTIONS = 4
FLOOR_FIRST = 500_000_000
WARM_S = 4.0
PATIENCE_S = 180.0
PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")


class Seen:
    """What foreachBatch collects: by id, the moment it was there."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}

    def collect(self, batch: DataFrame, _number: int) -> None:
        ids = [row[0] for row in batch.select("after.id").collect()]
        self.at.update(dict.fromkeys(ids, time.time()))


@contextmanager
def _running(changes: DataFrame, folder: str) -> Iterator[tuple[Any, Seen]]:
    seen = Seen()
    writer = changes.writeStream.foreachBatch(seen.collect)
    query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=folder)).start()
    try:
        yield query, seen
    finally:
        query.stop()


def _write(server: MariaDb, first: int, rate: float, seconds: float) -> list[float]:
    connection = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    given = {"connection": connection, "table": TABLE, "first": first, "rate": rate, "seconds": seconds}
    command = [
        sys.executable,
        "-m",
        "tools.bench.spark.steady_writer",
        json.dumps(given | {"connections": CONNECTIONS}),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def measure(
    spark: SparkSession,
    server: MariaDb,
    options: Mapping[str, str],
    first: int,
    limits: argparse.Namespace,
    folder: str,
) -> dict[str, Any]:
    """A query over our source, while a process of its own writes; ids count up from `first`."""
    changes = spark.readStream.format("mariadb-binlog").options(**options).load()
    with _running(changes, folder) as (query, seen):

        def arrived() -> bool:
            _check(query)
            # Another value each time: what changes nothing is not logged.
            server.sql(f"REPLACE INTO {TABLE} VALUES ({first - 1}, '{time.time()}')")
            return first - 1 in seen.at

        wait_until(arrived, "the query sees rows", timeout_s=PATIENCE_S)
        written = _write(server, first, limits.rate, WARM_S + limits.seconds)
        last = first + len(written) - 1
        wait_until(lambda: last in seen.at, "the query has seen all rows", timeout_s=PATIENCE_S)
        progress = list(query.recentProgress)
    measured = range(int(WARM_S * limits.rate), len(written))
    took = [seen.at[first + row] - written[row] for row in measured]
    rate = (len(measured) - 1) / (written[measured[-1]] - written[measured[0]])
    return _summary(took, rate, progress)


def measure_floor(spark: SparkSession, server: MariaDb, limits: argparse.Namespace, folder: str) -> dict[str, Any]:
    begin = time.time()
    clock = spark.readStream.format(CLOCK).option("begin", str(begin)).option("rate", str(limits.rate)).load()
    with _running(clock, folder) as (query, seen):
        wait_until(lambda: _check(query) or seen.at, "the query sees rows", timeout_s=PATIENCE_S)
        written = _write(server, FLOOR_FIRST, limits.rate, WARM_S + limits.seconds)
        progress = list(query.recentProgress)
    first, last = written[0] + WARM_S, written[-1]
    rows = [row for row in seen.at if first <= due_at(row, begin, limits.rate) <= last]
    return _summary([seen.at[row] - due_at(row, begin, limits.rate) for row in rows], limits.rate, progress)


def _check(query: Any) -> None:
    """Raise what ended the query."""
    error = query.exception()
    if error is not None:
        raise error


def _summary(seconds: list[float], rate: float, progress: list[Any]) -> dict[str, Any]:
    cuts = statistics.quantiles(seconds, n=100)
    batches = [p["durationMs"] for p in progress if p["numInputRows"]][3:]
    return {
        "p50_ms": round(cuts[49] * 1000, 1),
        "p99_ms": round(cuts[98] * 1000, 1),
        "rows": len(seconds),
        "rows_per_second": round(rate),
        "batches": len(batches),
        "batch_ms": {part: statistics.median(b.get(part, 0) for b in batches) for part in PARTS},
    }


def run_settings(name: str, limits: argparse.Namespace) -> list[dict[str, Any]]:
    """All sources in one session with these settings."""
    results = []
    spark = open_session(SETTINGS[name])
    spark.dataSource.register(ClockSource)
    with MariaDb(limits.server, "--binlog-row-metadata=FULL") as server, tempfile.TemporaryDirectory() as folder:
        server.add_user()
        server.sql(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, text VARCHAR(40))")
        server.sql(f"INSERT INTO {TABLE} VALUES (0, 'a log alone tells of tables with rows')")
        own = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "relayDir": f"{folder}/own",
        }
        try:
            for source in limits.source or SOURCES:
                if source == "floor":
                    result = measure_floor(spark, server, limits, folder)
                elif source == "embedded":
                    result = measure(spark, server, own | {"table": TABLE}, 1_000_000, limits, folder)
                else:
                    with Daemon(server, Path(folder) / "daemon") as daemon:
                        daemon.catch_up()
                        given = {"relayDir": str(daemon.relay_dir), "table": TABLE}
                        result = measure(spark, server, given, 100_000_000, limits, folder)
                results.append({"settings": name, "source": source, **result})
                print(_line(results[-1]), flush=True)
        finally:
            spark.stop()
    return results


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench latency", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--rate", type=float, default=1000.0, help="transactions of one row a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="measured of each source, after a warm-up")
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--source", action="append", choices=SOURCES, help="repeatable; default all")
    parser.add_argument("--settings", action="append", choices=list(SETTINGS), help="repeatable; default all")
    limits = parser.parse_args(argv)
    names = limits.settings or list(SETTINGS)
    results = []
    for name in names:
        if len(names) == 1:
            results += run_settings(name, limits)
            continue
        # Settings of Spark's Python processes hold for the life of a JVM.
        arguments = [
            *("--settings", name),
            *("--rate", str(limits.rate)),
            *("--seconds", str(limits.seconds)),
            "--json",
        ]
        arguments += [part for source in limits.source or () for part in ("--source", source)]
        arguments += ["--server", limits.server] if limits.server else []
        command = [sys.executable, "-m", "tools.bench.spark.bench_latency", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None, "it was asked for"
            *_, last = (_echoed(line) for line in process.stdout)
        if process.returncode:
            raise SystemExit(f"{name}: ended with {process.returncode}")
        results += json.loads(last)["results"]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    if limits.json:
        print(json.dumps({"benchmark": "latency", "rate": limits.rate, "results": results}))
    return 0


def _echoed(line: str) -> str:
    if not line.startswith("{") and " cores, " not in line:
        print(line, end="", flush=True)
    return line


def _line(result: dict[str, Any]) -> str:
    parts = [
        f"{result['settings']:8} {result['source']:8} p50 {result['p50_ms']:7.1f} ms  p99 {result['p99_ms']:7.1f} ms"
    ]
    parts.append(f"{result['rows_per_second']:5} rows/s, {result['batches']} batches; ms of a batch (median):")
    parts += [f"{part} {value:.0f}" for part, value in result["batch_ms"].items()]
    return "  ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
