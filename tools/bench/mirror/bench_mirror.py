"""The mirror against what else brings a server's tables into Delta tables, all in one run and in turn.

    load      the first rows of tables of 2, 4 and 8 million: from the call of mirror() to the end of a query that ends
              by itself (availableNow), against Spark's JDBC source with MariaDB's driver into a Delta table, from its
              read to the end of its write; in as many connections, both with everything that is started for it. `held`
              is the floor of both: the same rows written into a Delta table from Spark's memory. The slope between the
              smallest and the largest table is what a row costs without the start
    changes   small transactions on random rows that are in the binlog already: from the start of the first micro-batch
              with rows to the end of the last one, with default settings, into 1, 12 and 100 tables; against the recipe
              for many tables of docs/recipes.md, which reads the same changes with the same settings. `mirror` has
              writer=spark, `native` the default. `held` is what no MERGE a table of Spark goes below: those of the
              mirror, its settings too, with the last change of each key in Spark's memory; `limit` the same by delta-rs
              from the memory of one process, a table at a time. Both leave out reading, and the commit of the control
              table. In rounds, each with as many new changes, and with a start of all: the median of them, and each of
              them. `debezium` is Debezium Embedded, which writes the changes as lines of JSON into a file, and Spark,
              which reads it and brings the last change of each key in by the same MERGEs as `held`, one behind the
              other: without the start of the engine, which has read all of them once before, and where Maven reaches
              its registry
    latency   from the answer to a COMMIT to the moment when the file of the Delta commit that has it was written, while
              one row a transaction comes at a steady rate; p50 and p99, with 1, 12 and 100 tables
    size      batches of 10 000 random changes into targets of 1 and 10 million rows: seconds, CPU, and the memory of
              the largest Python process and of the JVM
    start     a mirror of one small table in a session that is warm, to the end of a query that ends by itself
    tpcc      go-tpc without waiting times, on the same cores, for ten minutes: every half second, how old what is
              visible is. Not among the defaults: it needs Go

All run in one session, so that they all have what mirror() sets in it. CPU seconds are those of JVM and Python
processes, the driver's among them, not the server's. Wanted: a third of JDBC's CPU a row more, twice its rate at four
million rows, ten times the recipe's rate with 12 tables. The defaults are meant to take about an hour on two cores at
rest; a target of 100 million rows (`--sizes`) wants some 60 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_source.mirroring.apply.parallel_applier import SETTING, SNAPSHOT_PARTS
from tests.fixtures.jars import delta_settings, mariadb_driver
from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.peer_programs import debezium_program
from tools.bench.kit.spark_runs import PLAIN_CHECKPOINTS, UNIX_SOCKETS, open_session
from tools.bench.mirror.debezium_changes import debezium_changes
from tools.bench.mirror.mirror_runs import COLUMNS, Bench, measured, numbers, triggers
from tools.bench.mirror.mirror_waits import latency, size, start, tpcc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.bench.mirror.mirror_runs import Measured

PARTS = "load,changes,latency,size,start"
WANTED = {"jdbc_rate": 2.0, "jdbc_slope": 3.0, "recipe_native": 10.0}
COMPARED_TABLES = 12
WARM_ROWS = 5_000
OPTIONS = (
    "--binlog-row-metadata=FULL",
    "--innodb-buffer-pool-size=1G",
    "--innodb-log-file-size=512M",
    "--max-allowed-packet=64M",
)


def load(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """One table of each size, by both ways in turn and from memory, after a small one that warms both up."""
    found: dict[int, dict[str, list[Measured]]] = {}
    for rows in (WARM_ROWS, *sorted(args.rows) * args.repeat):
        (name,) = bench.fill(1, rows)
        folder = bench.folder()
        options = {"snapshotConnections": args.connections}
        ours = measured(rows, lambda: bench.mirror(folder, **options).awaitTermination())  # noqa: B023
        theirs = measured(rows, lambda: bench.jdbc(bench.folder(), name, rows, args.connections))  # noqa: B023
        if rows != WARM_ROWS:
            held = bench.held(bench.folder(), name, rows, args.connections)
            runs = found.setdefault(rows, {"mirror": [], "jdbc": [], "held": []})
            for way, run in (("mirror", ours), ("jdbc", theirs), ("held", held)):
                runs[way].append(run)
        bench.remove_all()
    told: dict[str, Any] = {str(rows): {way: _middle(runs) for way, runs in found[rows].items()} for rows in found}
    for rows, ways in told.items():
        for way, one in ways.items():
            print(
                f"load     {way:7} {int(rows):10,} rows  {one['rate']:10,.0f} rows/s  {one['cpu_us']:7.2f} CPU us/row",
                flush=True,
            )
    if len(found) > 1:
        told["slope"] = {way: _slope(told, way) for way in ("mirror", "jdbc", "held")}
        for way, slope in told["slope"].items():
            print(f"load     {way:7} {slope:7.2f} CPU us for each row more, from the smallest table to the largest")
    return told


def _slope(told: dict[str, Any], way: str) -> float:
    """Return the CPU microseconds of a row where the start of a run is left out."""
    few, many = min(map(int, told)), max(map(int, told))
    cpu = [rows * told[str(rows)][way]["cpu_us"] for rows in (few, many)]
    return (cpu[1] - cpu[0]) / (many - few)


def changes(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """Changes of the same tables by both ways and from memory, in rounds, after a small run that warms both up."""
    engine = debezium_program() if args.debezium else None
    _changes(bench, 1, WARM_ROWS, WARM_ROWS, rounds=1, engine=engine)
    told: dict[str, Any] = {}
    for tables in args.tables:
        rows = max(1_000, args.target_rows // tables)
        found = _changes(bench, tables, rows, args.changes, rounds=args.rounds, engine=engine)
        told[str(tables)] = {way: _middle(runs) for way, runs in found.items()}
        for way, runs in found.items():
            one = told[str(tables)][way]
            print(
                f"changes  {way:8} {tables:3} tables  {one['rate']:9,.0f} rows/s  {one['cpu_us']:8.1f} CPU us/row  "
                f"rounds: {', '.join(f'{run.rate:,.0f} and {run.cpu_us:.0f}' for run in runs)}",
                flush=True,
            )
    return told


def _changes(
    bench: Bench, tables: int, rows: int, changes: int, *, rounds: int, engine: Path | None
) -> dict[str, list[Measured]]:
    names = bench.fill(tables, rows)
    folders = {"mirror": bench.folder(), "native": bench.folder(), "recipe": bench.folder()}
    bench.mirror(folders["mirror"], writer="spark").awaitTermination()
    bench.mirror(folders["native"], writer="native").awaitTermination()
    bench.recipe(folders["recipe"], names).awaitTermination()
    found: dict[str, list[Measured]] = {"mirror": [], "native": [], "recipe": [], "held": [], "limit": []}
    if engine is not None:
        folders["debezium"] = bench.copied(folders["mirror"])
        found["debezium"] = []
    for _ in range(rounds):
        skipped = bench.changed
        few = bench.change(names, rows, len(names))
        # Spark ends Python processes after a minute without work; a mirror that runs has them.
        bench.mirror(folders["native"], writer="native").awaitTermination()
        made = bench.change(names, rows, changes)
        before, native = bench.copied(folders["mirror"]), bench.copied(folders["native"])
        found["native"].append(triggers(bench.mirror(folders["native"], writer="native"), made))
        found["limit"].append(bench.limit(native, folders["native"], names, made))
        shutil.rmtree(native)
        made += few
        found["mirror"].append(triggers(bench.mirror(folders["mirror"], writer="spark"), made))
        found["recipe"].append(triggers(bench.recipe(folders["recipe"], names), made))
        found["held"].append(bench.held_changes(before, folders["mirror"], names, made))
        shutil.rmtree(before)
        if engine is not None:
            lake = folders["debezium"]
            found["debezium"].append(debezium_changes(bench, engine, lake, names, made, skipped=skipped))
            if differ := bench.differences(folders["mirror"], lake, names):
                raise SystemExit(f"{differ} rows differ between the targets of the mirror and those of Debezium")
    for folder in folders.values():
        shutil.rmtree(folder)
    return found


def _middle(runs: Sequence[Measured]) -> dict[str, float]:
    return {"rate": statistics.median(r.rate for r in runs), "cpu_us": statistics.median(r.cpu_us for r in runs)}


def _ratios(found: dict[str, Any]) -> dict[str, float | None]:
    ratio: dict[str, float | None] = {
        "jdbc_rate": None,
        "jdbc_slope": None,
        "jdbc_cpu": None,
        "jdbc_held": None,
        "recipe": None,
        "recipe_native": None,
        "recipe_held": None,
        "recipe_limit": None,
        "debezium": None,
        "debezium_cpu": None,
    }
    with suppress(KeyError):
        loads = dict(found["load"])
        slope = loads.pop("slope", None)
        largest = loads[max(loads, key=int)]
        ratio["jdbc_rate"] = largest["mirror"]["rate"] / largest["jdbc"]["rate"]
        ratio["jdbc_cpu"] = largest["jdbc"]["cpu_us"] / largest["mirror"]["cpu_us"]
        ratio["jdbc_held"] = largest["jdbc"]["cpu_us"] / largest["held"]["cpu_us"]
        ratio["jdbc_slope"] = slope and slope["jdbc"] / slope["mirror"]
    with suppress(KeyError):
        compared = found["changes"][str(COMPARED_TABLES)]
        ratio["recipe"] = compared["mirror"]["rate"] / compared["recipe"]["rate"]
        ratio["recipe_native"] = compared["native"]["rate"] / compared["recipe"]["rate"]
        ratio["recipe_limit"] = compared["limit"]["rate"] / compared["recipe"]["rate"]
        ratio["recipe_held"] = compared["held"]["rate"] / compared["recipe"]["rate"]
        ratio["debezium"] = compared["mirror"]["rate"] / compared["debezium"]["rate"]
        ratio["debezium_cpu"] = compared["debezium"]["cpu_us"] / compared["mirror"]["cpu_us"]
    return ratio


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench mirror", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=PARTS, help=f"some of {PARTS},tpcc")
    parser.add_argument(
        "--rows", type=numbers, default=[2_000_000, 4_000_000, 8_000_000], help="of the tables that are loaded"
    )
    parser.add_argument("--connections", type=int, default=2, help="for reading it, both ways")
    parser.add_argument("--repeat", type=int, default=3, help="how often it is loaded, both ways")
    parser.add_argument("--tables", type=numbers, default=[1, 12, 100], help="numbers of tables that changes go into")
    parser.add_argument("--target-rows", type=int, default=600_000, help="in all tables together, before the changes")
    parser.add_argument("--changes", type=int, default=240_000, help="row changes in all tables together")
    parser.add_argument("--rounds", type=int, default=3, help="of changes, all ways in turn")
    parser.add_argument(
        "--debezium", action=argparse.BooleanOptionalAction, default=True, help="changes by Debezium Embedded, too"
    )
    parser.add_argument("--latency-tables", type=numbers, default=[1, 12, 100])
    parser.add_argument(
        "--writers", type=lambda words: words.split(","), default=["native"], help="whose latency is measured"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="commits a second")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds of commits that are not counted")
    parser.add_argument("--seconds", type=float, default=40.0, help="seconds of commits that are")
    parser.add_argument("--sizes", type=numbers, default=[1_000_000, 10_000_000])
    parser.add_argument("--minutes", type=float, default=10.0, help="of TPC-C")
    parser.add_argument("--warehouses", type=int, default=1, help="of TPC-C")
    parser.add_argument("--terminals", type=int, default=4, help="of TPC-C, which do not wait")
    parser.add_argument("--version", default=None, help="server version")
    parser.add_argument(
        "--delta-defaults",
        action="store_true",
        help="for a session in which Delta reads a table's log in 50 tasks, as it does unless told otherwise, and not "
        "in two; a mirror sets that itself",
    )
    parser.add_argument(
        "--classes",
        type=int,
        help="compiled classes that the session keeps, for all ways; by default as many as mirror() has it keep, while "
        "Spark's own number is 100",
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    parts = {"load": load, "changes": changes, "latency": latency, "size": size, "start": start, "tpcc": tpcc}
    found: dict[str, Any] = {}
    settings = UNIX_SOCKETS | PLAIN_CHECKPOINTS | delta_settings()
    settings["spark.jars"] += f",{mariadb_driver()}"
    if args.classes is not None:
        settings[SETTING] = str(args.classes)
    if args.delta_defaults:
        del settings[SNAPSHOT_PARTS]
    with tempfile.TemporaryDirectory(prefix="bench-mirror-") as folder, MariaDb(args.version, *OPTIONS) as server:
        spark = open_session(settings)
        bench = Bench(spark, server, Path(folder))
        print(f"MariaDB {server.version}, Spark {spark.version}, local[2]; a row is {COLUMNS}", flush=True)
        for part in args.only.split(","):
            found[part] = parts[part](bench, args)
        spark.stop()
    found["ratio"] = _ratios(found)
    for name, ratio in found["ratio"].items():
        wanted = f" (wanted {WANTED[name]})" if name in WANTED else ""
        print(f"ratio    {name:11} {'not run' if ratio is None else f'{ratio:.2f}'}{wanted}", flush=True)
    if args.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
