"""What a query costs while nothing happens: percent of a core of the JVM and of all its Python processes.

session   the session alone, behind one job: what the JVM takes whoever uses it
embedded  a query with its own replica, on a server at rest, behind its first row
attached  a query that reads the relay log of a `mariadb-replica run`, whose own process does not count

All in one session, one after the other, with Spark's own settings. Wanted: 1 % above the session alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb, wait_until
from tests.spark.daemons import Daemon
from tools.bench.kit.process_times import jvm_process, processes_below
from tools.bench.kit.spark_runs import open_session
from tools.bench.kit.workloads import DATABASE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

KINDS = ("session", "embedded", "attached")
TABLE = f"{DATABASE}.t"
SETTLE_S = 30.0
"""Behind a row: the JVM's compiler and its garbage collector work on for seconds."""
PATIENCE_S = 180.0


def measured(spark: SparkSession, kind: str, seconds: float) -> dict[str, Any]:
    """Wait until all is quiet, and then measure."""
    time.sleep(SETTLE_S)
    root = jvm_process(spark)
    begin, before = time.time(), processes_below(root)
    time.sleep(seconds)
    end, after = time.time(), processes_below(root)
    # Of processes that live: what ends meanwhile is a worker that had nothing to do for a minute.
    grown = {one: times.own - (before[one].own if one in before else 0.0) for one, times in after.items()}
    everything = sum(grown.values())
    used = {"jvm": grown[root], "python": everything - grown[root], "all": everything}
    return {"kind": kind, **{part: round(taken / (end - begin) * 100, 2) for part, taken in used.items()}}


def query(
    spark: SparkSession, server: MariaDb, kind: str, options: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    """A query that has seen a row, and sees none any more."""
    seen = []

    def collect(batch: DataFrame, _number: int) -> None:
        seen.extend(batch.select("op").take(1))

    changes = spark.readStream.format("mariadb-binlog").options(table=TABLE, **options).load()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        running = changes.writeStream.foreachBatch(collect).option("checkpointLocation", folder).start()
        try:

            def arrived() -> bool:
                error = running.exception()
                if error is not None:
                    raise error
                server.sql(f"REPLACE INTO {TABLE} VALUES (1, '{time.time()}')")
                return bool(seen)

            wait_until(arrived, "the query sees a row", timeout_s=PATIENCE_S)
            return measured(spark, kind, seconds)
        finally:
            running.stop()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench idle", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured of each, after half a minute")
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    options = parser.parse_args(argv)
    results = []
    spark = open_session({})
    with MariaDb(options.server, "--binlog-row-metadata=FULL") as server, tempfile.TemporaryDirectory() as folder:
        server.add_user()
        server.sql(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, text VARCHAR(40))")
        server.sql(f"INSERT INTO {TABLE} VALUES (0, 'a log alone tells of tables with rows')")
        account = {"host": server.host, "port": str(server.port), "user": server.user, "password": server.password}
        try:
            for kind in KINDS:
                if kind == "session":
                    spark.range(1000).count()
                    results.append(measured(spark, kind, options.seconds))
                elif kind == "embedded":
                    own = account | {"relayDir": f"{folder}/own"}
                    results.append(query(spark, server, kind, own, options.seconds))
                else:
                    with Daemon(server, Path(folder) / "daemon") as daemon:
                        daemon.catch_up()
                        given = {"relayDir": str(daemon.relay_dir)}
                        results.append(query(spark, server, kind, given, options.seconds))
                results[-1]["above"] = round(results[-1]["all"] - results[0]["all"], 2)
                print(_line(results[-1]), flush=True)
        finally:
            spark.stop()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        print(json.dumps({"benchmark": "idle", "results": results}))
    return 0


def _line(result: dict[str, Any]) -> str:
    return (
        f"{result['kind']:8} {result['all']:5.2f} % of a core: JVM {result['jvm']:.2f}, Python {result['python']:.2f}; "
        f"above the session {result['above']:.2f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
