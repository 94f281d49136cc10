"""From `python app.py` to the first row in foreachBatch, phase by phase: session, load(), start(), first row.

floor     a source in Python that has nothing to do: no server, no relay log, no decoder (clock_source.py)
warm      our source with its own replica, kernels compiled
empty     the same with an empty cache of kernels, as after an installation without `python -m replica.native.warm`
unpacked  warm, with a Spark whose Python package lies unpacked: Spark takes it from a zip in each of its Python
          processes, which compiles its modules each time (tests/fixtures/spark_home.py)

Each is an application of its own process with its own JVM (start_application.py), with Spark's own settings, in turn.
There are rows before the query starts, in both sources. CPU seconds are those of all processes that the application
started. Wanted: load() 1.5 s at most, the first row 4 s after start() at most, 12 s with an empty cache.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb
from tests.fixtures.spark_home import spark_python, unpacked_spark_home
from tools.bench.kit.workloads import DATABASE
from tools.bench.spark.clock_source import NAME as CLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("floor", "warm", "empty", "unpacked")
PHASES = ("session", "load()", "start()", "first row")
ROWS = 100
TIMEOUT_S = 400.0


def application(kind: str, server: MariaDb, folder: str) -> list[dict[str, Any]]:
    """Run one application to its first row."""
    own = tempfile.mkdtemp(dir=folder)
    if kind == "floor":
        given = {"source": CLOCK, "options": {"begin": str(time.time() - 60), "rate": "10"}}
    else:
        options = {
            "host": server.host,
            "port": str(server.port),
            "user": server.user,
            "password": server.password,
            "relayDir": f"{own}/relay",
            "table": f"{DATABASE}.t",
            "startingPosition": "earliest",
        }
        given = {"source": "mariadb-binlog", "options": options}
    environment = dict(os.environ) | {"PYSPARK_PYTHON": spark_python()}
    if kind == "unpacked":
        environment["SPARK_HOME"] = str(unpacked_spark_home())
    if kind == "empty":
        environment["NUMBA_CACHE_DIR"] = f"{own}/kernels"
    command = [sys.executable, "-m", "tools.bench.spark.start_application", json.dumps(given | {"folder": own})]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment, timeout=TIMEOUT_S)
    if kind == "empty":
        with (next(Path(f"{own}/kernels").iterdir()) / "compiling").open("a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # what is still compiling would take the processor from the next one
    if done.returncode:
        raise SystemExit(f"the application ended with {done.returncode}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench start", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--rounds", type=int, default=3, help="applications of each kind, in turn")
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable; default all")
    options = parser.parse_args(argv)
    kinds = options.kind or KINDS
    made: dict[str, list[list[dict[str, Any]]]] = {kind: [] for kind in kinds}
    with MariaDb(options.server, "--binlog-row-metadata=FULL") as server, tempfile.TemporaryDirectory() as folder:
        server.add_user()
        server.sql(f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.t (id INT PRIMARY KEY, text VARCHAR(40))")
        server.sql(*(f"INSERT INTO {DATABASE}.t VALUES ({row}, 'a row')" for row in range(ROWS)))
        if {"warm", "unpacked"} & set(kinds):
            application("warm", server, folder)  # compiles what is not compiled yet, and is not counted
        for _ in range(options.rounds):
            for kind in kinds:
                made[kind].append(application(kind, server, folder))
    results = [_summary(kind, runs) for kind, runs in made.items()]
    print("seconds by the clock, and in brackets CPU seconds of JVM + Python; medians")
    for result in results:
        print(_line(result), flush=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        print(json.dumps({"benchmark": "start", "results": results}))
    return 0


def _summary(kind: str, runs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    phases = {}
    for number, phase in enumerate(PHASES):
        taken = [run[number] for run in runs]
        phases[phase] = {
            key: round(statistics.median(one[key] for one in taken), 2) for key in ("wall", "jvm_cpu", "python_cpu")
        }
        phases[phase]["most"] = round(max(one["wall"] for one in taken), 2)
    from_start = round(statistics.median(run[2]["wall"] + run[3]["wall"] for run in runs), 2)
    return {"kind": kind, "rounds": len(runs), "phases": phases, "start_to_row": from_start}


def _line(result: dict[str, Any]) -> str:
    parts = [f"{result['kind']:8}"]
    for phase, taken in result["phases"].items():
        parts.append(f"{phase} {taken['wall']:5.2f} ({taken['jvm_cpu']:.2f} + {taken['python_cpu']:.2f})")
    parts.append(f"start() to row {result['start_to_row']:.2f}")
    return "  ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
