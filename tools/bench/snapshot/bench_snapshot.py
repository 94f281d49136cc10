"""Whole tables into Arrow and into Spark, beside everything else that can do it, all in one run and in turn.

    source             our own: into Spark's noop sink, as a stream that begins with the table, in the flat shape: the
                       table's columns and the seven that are said of each change
    tables             our own: into Spark's noop sink, the table alone as a batch (content=tables): its columns and
                       `_position`, as of one position
    jdbc               Spark's JDBC source with MariaDB's driver, partitionColumn, fetchsize 10 000, noop sink: the
                       table's columns, of no one position
    ready-made         the very batches of the source, handed to Spark without being made
    ready-made tables  those of `tables`
    reader             our own without Spark: connections, snapshot, rows to decoded Arrow batches
    engine             the same with all that a query does before Spark has the rows: they are moved to a position, and
                       wait in files with an fsync
    connectorx         ConnectorX into Arrow, without Spark; left out, with a word, where it cannot be had
    receive            the bytes of the same SELECT received and thrown away, over as many connections

CPU seconds are those of the client: JVM and Python, not the server. Then what a COMMIT takes while the engine reads
tables with default settings, beside no reader and beside mariadb-dump --single-transaction; on a server that does not
wait for its disk, so that there is nothing else in it. Wanted: the engine with at most 0.5 CPU microseconds a row for
narrow and 1.0 for mixed; source and tables 3 times JDBC by CPU, the reader not below ConnectorX by CPU and at 0.8 of
the bare receive's rate; a source process below 600 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tests.fixtures.jars import mariadb_driver
from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.peer_programs import python_packages
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, UNIX_SOCKETS, open_session
from tools.bench.replica.bench_commit import commits
from tools.bench.snapshot.table_spark import TableInSpark, TableRun
from tools.bench.snapshot.table_workloads import OPTIONS, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

ROWS = 5_000_000
CONNECTIONS = 2
WANTED_BEFORE_SPARK_US = {"narrow": 0.5, "mixed": 1.0}
WANTED_RATIO = {"jdbc_cpu": 3.0, "jdbc_cpu_tables": 3.0, "connectorx_cpu": 1.0, "receive_wall": 0.8}
WANTED_PEAK_MB = 600
COMMITS = 50_000
SETTLE_S = 5.0
"""What reads beside the commits has begun by then, whatever it has to load."""
ARMS = ("none", "engine", "dump")


class Comparison:
    """One table of a running server, read by every way in turn."""

    def __init__(
        self, spark: SparkSession, server: MariaDb, name: str, args: argparse.Namespace, connectorx: Path | None
    ) -> None:
        self._name = name
        self._rows = args.rows
        self._server = server
        self._connections = args.connections
        in_spark = TableInSpark(spark, server, name, args.rows, args.connections)
        self._ways: dict[str, Callable[[], TableRun]] = {
            "receive": lambda: self.peer("receive"),
            "reader": lambda: self.peer("reader"),
            "engine": lambda: self.peer("engine"),
            "source": in_spark.source,
            "tables": in_spark.tables,
            "jdbc": in_spark.jdbc,
            "ready-made": in_spark.ready_made,
            "ready-made tables": in_spark.ready_made_tables,
        }
        if connectorx is not None:
            self._ways["connectorx"] = lambda: self.peer("connectorx", folder=str(connectorx))

    def peer(self, way: str, **more: object) -> TableRun:
        """A way of table_peers.py, in a process of its own."""
        done = json.loads(subprocess.run(self.command(way, **more), check=True, stdout=subprocess.PIPE).stdout)
        return TableRun(done["wall"], done["cpu"], done["peak_bytes"])

    def command(self, way: str, **more: object) -> list[str]:
        settings: dict[str, object] = {
            "port": self._server.port,
            "user": self._server.user,
            "password": self._server.password,
            "workload": self._name,
            "rows": self._rows,
            "connections": self._connections,
        }
        return [sys.executable, "-m", "tools.bench.snapshot.table_peers", way, json.dumps(settings | more)]

    def rounds(self, count: int) -> dict[str, Any]:
        """Medians of as many rounds, behind one that warms up; every way once a round."""
        made: dict[str, list[TableRun]] = {way: [] for way in self._ways}
        for turn in range(count + 1):
            for way, run in self._ways.items():
                found = run()
                if turn:
                    made[way].append(found)
                    print(f"  {self._name} {way}: {self._line(found)}", flush=True)
        middle = {
            way: TableRun(*(statistics.median(getattr(run, field) for run in runs) for field in TableRun._fields))
            for way, runs in made.items()
        }
        return self._summary(middle)

    def _line(self, run: TableRun) -> str:
        jvm = f" ({run.jvm / self._rows * 1e6:.3f} of it in the JVM)" if run.jvm else ""
        return f"{run.cpu / self._rows * 1e6:.3f} CPU us a row{jvm}, {self._rows / run.wall:,.0f} rows/s"

    def _summary(self, runs: dict[str, TableRun]) -> dict[str, Any]:
        ratio = {
            "jdbc_cpu": runs["jdbc"].cpu / runs["source"].cpu,
            "jdbc_cpu_tables": runs["jdbc"].cpu / runs["tables"].cpu,
            "receive_wall": runs["receive"].wall / runs["reader"].wall,
            "ready_made_cpu": runs["ready-made"].cpu / runs["source"].cpu,
            "ready_made_cpu_tables": runs["ready-made tables"].cpu / runs["tables"].cpu,
        }
        if "connectorx" in runs:
            ratio["connectorx_cpu"] = runs["connectorx"].cpu / runs["reader"].cpu
        return {
            "workload": self._name,
            "rows": self._rows,
            "connections": self._connections,
            "cpu_us_per_row": {way: round(run.cpu / self._rows * 1e6, 3) for way, run in runs.items()},
            "jvm_us_per_row": {way: round(run.jvm / self._rows * 1e6, 3) for way, run in runs.items() if run.jvm},
            "rows_per_second": {way: round(self._rows / run.wall) for way, run in runs.items()},
            "source_peak_mb": round(runs["source"].peak_bytes / 1e6),
            "ratio": {name: round(value, 3) for name, value in ratio.items()},
        }


# -- what writers notice -----------------------------------------------------------------------------------------------


@contextmanager
def _again_and_again(command: list[str]) -> Iterator[None]:
    """Run a command over and over for as long as this is open; its temporary files end with it."""
    over = threading.Event()
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="bench-snapshot-") as folder:
        environment = os.environ | {"TMPDIR": folder}

        def run() -> None:
            while not over.is_set():
                silent = subprocess.DEVNULL
                running[:] = [subprocess.Popen(command, env=environment, stdout=silent, stderr=silent)]
                running[0].wait()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        time.sleep(SETTLE_S)
        try:
            yield
        finally:
            over.set()
            running[0].kill()
            thread.join()


def commit_latency(server: MariaDb, comparison: Comparison, rounds: int, count: int) -> dict[str, dict[str, float]]:
    """Microseconds of a COMMIT, p50 and p99: alone, while we read with default settings, and under mariadb-dump."""
    server.sql("CREATE TABLE bench.commits (id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)")
    dump = [server.binary("mariadb-dump"), "--no-defaults", "--host=127.0.0.1", f"--port={server.port}"]
    dump += [f"--user={server.user}", f"--password={server.password}", "--single-transaction", "--quick", "bench"]
    dump += ["--skip-ssl"] if server.version >= "11" else []
    beside: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "none": nullcontext,
        "engine": lambda: _again_and_again(comparison.command("engine", forever=True)),
        "dump": lambda: _again_and_again(dump),
    }
    taken: dict[str, list[int]] = {arm: [] for arm in ARMS}
    for _ in range(rounds):
        for arm in ARMS:
            with beside[arm]():
                taken[arm] += commits(server, count)
    found = {}
    for arm, nanoseconds in taken.items():
        cuts = statistics.quantiles(nanoseconds, n=100)
        found[arm] = {"p50_us": round(cuts[49] / 1e3), "p99_us": round(cuts[98] / 1e3)}
        print(f"  COMMIT beside {arm}: p50 {found[arm]['p50_us']} us, p99 {found[arm]['p99_us']} us", flush=True)
    return found


# -- the run -----------------------------------------------------------------------------------------------------------


def shortfalls(result: dict[str, Any]) -> list[str]:
    """What is not as good as wanted, the farthest away first."""
    found = []
    for name, wanted in WANTED_RATIO.items():
        ratio = result["ratio"].get(name)
        if ratio is not None and ratio < wanted:
            found.append((ratio / wanted, f"{name} {ratio:.2f}, wanted {wanted}"))
    cost, wanted = result["cpu_us_per_row"]["engine"], WANTED_BEFORE_SPARK_US[result["workload"]]
    if cost > wanted:
        found.append((wanted / cost, f"{cost:.2f} CPU us a row before Spark, wanted {wanted}"))
    if (peak := result["source_peak_mb"]) > WANTED_PEAK_MB:
        found.append((WANTED_PEAK_MB / peak, f"the source process had {peak} MB, wanted {WANTED_PEAK_MB}"))
    return [text for _, text in sorted(found)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench snapshot", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--rows", type=int, default=ROWS, help="of each table")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="of every way")
    parser.add_argument("--rounds", type=int, default=3, help="behind one that warms up")
    parser.add_argument("--commits", type=int, default=COMMITS, help="a round; 0 leaves their latency out")
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--workload", action="append", choices=list(TABLES), help="repeatable; default both")
    args = parser.parse_args(argv)
    connectorx = python_packages()
    settings = UNIX_SOCKETS | PLAIN_CHECKPOINTS | {"spark.jars": str(mariadb_driver())}
    results, latency = [], {}
    spark = open_session(settings)
    try:
        with MariaDb(args.server, *OPTIONS) as server:
            for name in args.workload or TABLES:
                TABLES[name].fill(server, args.rows)
                comparison = Comparison(spark, server, name, args, connectorx)
                results.append(comparison.rounds(args.rounds))
            if args.commits:
                latency = commit_latency(server, comparison, args.rounds, args.commits)
            version = server.version
    finally:
        spark.stop()
    missed = [f"{result['workload']}: {text}" for result in results for text in shortfalls(result)]
    for text in missed:
        print(f"NOT REACHED: {text}")
    for result in results:
        print(f"{result['workload']}: {result['ratio']}, source process {result['source_peak_mb']} MB")
        print(f"  CPU us a row {result['cpu_us_per_row']}, of it in the JVM {result['jvm_us_per_row']}")
        print(f"  rows a second {result['rows_per_second']}")
    print(f"MariaDB {version}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    if args.json:
        by_peer = {result["workload"]: result["ratio"] for result in results}
        ratio = {peer: {name: by_peer[name].get(peer) for name in by_peer} for peer in WANTED_RATIO}
        whole = {"benchmark": "snapshot", "server": version, "met": not missed, "not_reached": missed, "ratio": ratio}
        print(json.dumps(whole | {"results": results, "commit": latency}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
