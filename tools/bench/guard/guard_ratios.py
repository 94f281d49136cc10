"""The ratios that `scripts/bench guard` judges, each measured on as little as tells twice the cost from noise.

In: nothing; binlogs are made where they are not there. Out: by workload, or by benchmark where it has none of them, CPU
time of a peer divided by ours, higher is better: those of `bench pipeline`, `relay`, `decode`, `dump` and `spark`, and
those with ours on both sides, of `bench task`, `tables` and `plan`, and two of `bench mirror`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fixtures.mariadb import MariaDb
from tools.bench.decode import bench_decode, bench_dump
from tools.bench.decode.bench_task import Task, cpu_seconds
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, UNIX_SOCKETS, open_session
from tools.bench.kit.workloads import OPTIONS, WORKLOADS, binlog
from tools.bench.replica import bench_relay
from tools.bench.replica.bench_pipeline import BARE, OURS, TOOL, measure
from tools.bench.replica.relay_workloads import SERVER_OPTIONS, write
from tools.bench.spark import bench_plan, bench_tables
from tools.bench.spark.bench_spark import Comparison, fill_relay, serve
from tools.bench.spark.many_tables import binlog_of_tables

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    Table = dict[str, dict[str, float]]

MEGABYTES, ROUNDS, SECONDS = 40, 3, 1.0
PEERS = (BARE, "python-mysql-replication", "go-mysql", "mysql-binlog-connector-java", TOOL)
RECEIVE = "receive only, against receiving and storing"
RELAY = "mariadb-binlog --raw, against receiving and storing"
DECODE = {TOOL: "mariadb-binlog -v, against decoding one file", "twin": "the reference, against decoding one file"}
DUMPED, DUMP = ("narrow", "bulk"), "mariadb-binlog -vv, against dump --json"
PASSES = 5
SPARK = {"narrow": "envelope", "wide": "variant"}
"""The shape that most use, and the one of which most is ours."""
SPARK_MEGABYTES, TRIGGER_BYTES = 80, 12 << 20
READY = "ready-made batches into Spark, against the source as {}"
READY_PYTHON = "the same, of it in Python"
MANY_TABLES, TABLES_ROWS, RANGE_BYTES = 1000, 200_000, 8 << 20
MANY_FILES = 1000
PLANNING = (
    "latestOffset position, next",
    "partitions position",
    "reportLatestOffset position, next",
    "commit position",
)
"""The calls of each trigger."""

SHAPES = ("envelope", "flat")
TASK = "images alone, against batches as {}"
TABLES = f"one table, against {MANY_TABLES}"
PLAN = f"{bench_plan.FEW} relay files, against {MANY_FILES}"
MIRRORED_TABLES = 12
MIRRORED_ROWS = "300000"
MIRRORED = (
    *("--only", "changes,load", "--no-debezium", "--rounds", "1", "--repeat", "1", "--json"),
    *("--tables", str(MIRRORED_TABLES), "--target-rows", "60000", "--changes", "24000", "--rows", MIRRORED_ROWS),
)
RECIPE, JDBC = f"the recipe, against the mirror of {MIRRORED_TABLES} tables", "JDBC, against the first rows of a mirror"
OF_OURS = frozenset({*(TASK.format(shape) for shape in SHAPES), TABLES, PLAN})
"""The ratios that have ours on both sides."""


def measured() -> Table:
    """Measure the ratios of every workload, and those of no workload."""
    found = {name: _live(name) | _decoded(name) | _batches(name) for name in WORKLOADS}
    for name in DUMPED:
        found[name] |= _dumped(name)
    for name, ratios in _into_spark(*SPARK).items():
        found[name] |= ratios
    return found | {"tables": _tables(), "plan": _plan(), "mirror": _mirrored()}


def measured_again(section: str, peers: Collection[str]) -> dict[str, float]:
    """Measure some ratios of a section once more, with the others that come with them."""
    found: dict[str, float] = {}
    for measure_some, gives in {
        _live: {*PEERS, RECEIVE, RELAY},
        _decoded: {*DECODE.values()},
        _batches: {TASK.format(shape) for shape in SHAPES},
        _dumped: {DUMP},
    }.items():
        if not gives.isdisjoint(peers):
            found |= measure_some(section)
    if section in SPARK and not {READY.format(SPARK[section]), READY_PYTHON}.isdisjoint(peers):
        found |= _into_spark(section)[section]
    if section == "tables":
        found |= _tables()
    if section == "plan":
        found |= _plan()
    if section == "mirror":
        found |= _mirrored()
    return found


def _live(workload: str) -> dict[str, float]:
    with MariaDb(None, *SERVER_OPTIONS) as server:
        span = write(server, workload, MEGABYTES)
        result = measure(server, span, ROUNDS, SECONDS, PEERS)
        relay = bench_relay.measure(server, span, ROUNDS)
    clients = result["contenders"]
    found = {peer: ratio["cpu"] for peer, ratio in result["ratio"].items() if peer != BARE}
    found[RECEIVE] = clients[BARE]["cpu"] / clients[OURS]["receive_cpu"]
    return found | {RELAY: relay["cpu_tool_over_relay"]}


def _decoded(workload: str) -> dict[str, float]:
    ratios = bench_decode.measure(workload, MEGABYTES, SECONDS, "envelope", None)["cpu_ratio"]
    return {told: ratios[name] for name, told in DECODE.items()}


def _batches(workload: str) -> dict[str, float]:
    found = {}
    for shape in SHAPES:
        task = Task(binlog(workload, MEGABYTES), shape)
        task.rows()  # compiles, and warms up
        found[TASK.format(shape)] = cpu_seconds(task.decode, PASSES) / cpu_seconds(task.rows, PASSES)
    return found


def _dumped(workload: str) -> dict[str, float]:
    return {DUMP: bench_dump.measure(workload, MEGABYTES, ROUNDS, None)["cpu_ratio"]}


def _into_spark(*workloads: str) -> Table:
    spark = open_session(UNIX_SOCKETS | PLAIN_CHECKPOINTS)
    try:
        return {name: _of_shape(spark, name, SPARK[name]) for name in workloads}
    finally:
        spark.stop()


def _of_shape(spark: SparkSession, workload: str, shape: str) -> dict[str, float]:
    path = binlog(workload, SPARK_MEGABYTES)
    with MariaDb(None, *OPTIONS) as server, tempfile.TemporaryDirectory(prefix="bench-guard-") as folder:
        serve(server, path, WORKLOADS[workload].columns)
        relay, batches = Path(folder) / "relay", Path(folder) / "batches"
        fill_relay(server, relay)
        batches.mkdir()
        runs = Comparison(spark, server, shape, relay, batches, trigger_bytes=TRIGGER_BYTES).runs("noop", 1)
    (ready,), (ours,) = runs["ready-made"], runs["source"]
    return {
        READY.format(shape): ready.cpu_per_row / ours.cpu_per_row,
        READY_PYTHON: ready.python_per_row / ours.python_per_row,
    }


def _tables() -> dict[str, float]:
    paths = {count: binlog_of_tables(count, TABLES_ROWS) for count in (1, MANY_TABLES)}
    return {TABLES: 1 / float(bench_tables.measure(paths, RANGE_BYTES, PASSES)["ratio"])}


def _plan() -> dict[str, float]:
    """Compare the CPU time of all that is planned in a trigger."""
    few, many = (_a_trigger(count) for count in (bench_plan.FEW, MANY_FILES))
    return {PLAN: few / many}


def _a_trigger(files: int) -> float:
    times = bench_plan.time_files(bench_plan.FOLDER / f"guard-{files}", files)
    return sum(times[call][1] for call in PLANNING)


def _mirrored() -> dict[str, float]:
    """Run a small `bench mirror`, in a process of its own: its session needs Delta's jars from the start."""
    command = [sys.executable, "-m", "tools.bench.mirror.bench_mirror", *MIRRORED]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(printed.rstrip().rpartition("\n")[2])
    changes, load = found["changes"][str(MIRRORED_TABLES)], found["load"][MIRRORED_ROWS]
    return {
        RECIPE: changes["recipe"]["cpu_us"] / changes["native"]["cpu_us"],
        JDBC: load["jdbc"]["cpu_us"] / load["mirror"]["cpu_us"],
    }
