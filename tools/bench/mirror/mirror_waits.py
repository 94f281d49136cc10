"""What somebody waits for with a mirror: a row to be visible, a batch into a large target, the start, and TPC-C.

In: `Bench`, the arguments of `scripts/bench mirror`. Out: a dictionary of figures for each part; each is printed when
it is known.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from demo.written import covers
from streaming_source.mirroring.control.control_table import READING
from tools.bench.mirror.mirror_runs import DATABASE, commits, measured, triggers
from tools.proofs.soak.load.tpcc import DATABASE as TPCC
from tools.proofs.soak.load.tpcc import TABLES, check_filled, fetch_go_tpc, fill_command, paced_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql.streaming import StreamingQuery

    from tools.bench.mirror.mirror_runs import Bench

SIZE_CHANGES, SIZE_RUNS = 10_000, 3
STARTS = 4
SAMPLE_S = 0.5
FOLLOWS_S = 60.0
"""For a mirror to come to where TPC-C ended."""


def latency(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """One row a transaction at a steady rate, into as many tables in turn."""
    told: dict[str, Any] = {}
    for tables, writer in itertools.product(args.latency_tables, args.writers):
        names = bench.fill(tables, 1_000)
        folder = bench.folder()
        query = bench.mirror(folder, trigger=None, writer=writer)
        try:
            _write(bench, names, args.rate, args.warm, first=10_000_000)
            sent = _write(bench, names, args.rate, args.seconds, first=20_000_000)
            last = {name: gtid for name, _, gtid in sent}
            seen = {name: commits(folder / "lake" / name) for name in names}
            while not all(seen[name] and covers(seen[name][-1][1], last[name]) for name in names):
                _check(query)
                time.sleep(0.5)
                seen = {name: commits(folder / "lake" / name) for name in names}
        finally:
            query.stop()
        seen = {name: commits(folder / "lake" / name) for name in names}
        took = sorted(
            next(at for at, position in seen[name] if covers(position, gtid)) - answered
            for name, answered, gtid in sent
        )
        one = {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "rows": len(took)}
        told.setdefault(str(tables), {})[writer] = one
        print(
            f"latency  {writer:6} {tables:4} tables  {args.rate} commits/s  p50 {one['p50']:.2f} s  "
            f"p99 {one['p99']:.2f} s",
            flush=True,
        )
        shutil.rmtree(folder, ignore_errors=True)
    return told


def size(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """The same number of changes into targets of other sizes."""
    told: dict[str, Any] = {}
    for rows in args.sizes:
        names = bench.fill(1, rows)
        folder = bench.folder()
        bench.mirror(folder).awaitTermination()
        found = []
        for _ in range(SIZE_RUNS):
            made = bench.change(names, rows, SIZE_CHANGES)
            found.append(triggers(bench.mirror(folder), made))
        one = {
            "seconds": statistics.median(r.seconds for r in found),
            "cpu": statistics.median(r.cpu for r in found),
            "python_mb": max(r.peak.python for r in found) / 1e6,
            "jvm_mb": max(r.peak.jvm for r in found) / 1e6,
        }
        told[str(rows)] = one
        print(
            f"size     {rows:10,} rows in the target  {SIZE_CHANGES} changes in {one['seconds']:.1f} s, "
            f"{one['cpu']:.1f} CPU s, a Python process {one['python_mb']:.0f} MB, the JVM {one['jvm_mb']:.0f} MB",
            flush=True,
        )
        shutil.rmtree(folder)
    return told


def start(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """A mirror of one small table, until it is current and its query has ended; without the first, which warms up."""
    found = []
    for _ in range(STARTS):
        bench.fill(1, 100)
        folder = bench.folder()
        found.append(measured(1, lambda: bench.mirror(folder).awaitTermination()))  # noqa: B023
    one = {
        "seconds": statistics.median(r.seconds for r in found[1:]),
        "cpu": statistics.median(r.cpu for r in found[1:]),
    }
    print(f"start    one table of 100 rows  {one['seconds']:.1f} s, {one['cpu']:.1f} CPU s", flush=True)
    return one


def tpcc(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    """TPC-C as fast as the server makes it on the same cores; every half second, how old what is visible is.

    It starts when all tables have their snapshots.
    """
    fetch_go_tpc()
    bench.server.sql(f"CREATE DATABASE IF NOT EXISTS {TPCC}")
    subprocess.run(fill_command(bench.server, args.warehouses), check=True, stdout=subprocess.DEVNULL)
    check_filled(bench.server)
    folder = bench.folder()
    query = bench.mirror(folder, trigger=None, tables=f"{TPCC}.*", snapshotUnkeyed="whole")
    control = folder / "lake" / "mirror_control"
    asked: list[tuple[float, str]] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(SAMPLE_S):
            position = bench.server.gtid_binlog_pos()
            asked.append((time.time(), position))

    try:
        while not _all_read(control):
            _check(query)
            time.sleep(SAMPLE_S)
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        run = paced_command(bench.server, args.warehouses, args.terminals, args.minutes)
        done = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        ended.set()
        asking.join()
        deadline = time.monotonic() + FOLLOWS_S
        while not covers(commits(control)[-1][1], asked[-1][1]):
            _check(query)
            if time.monotonic() > deadline:
                raise SystemExit(f"the mirror is not at {asked[-1][1]} after {FOLLOWS_S:.0f} s more")
            time.sleep(SAMPLE_S)
        seen = commits(control)
    finally:
        query.stop()
    waits = [
        (next(at for at, place in seen if covers(place, position)) - sent, sent - asked[0][0])
        for sent, position in asked
    ]
    lags = sorted(lag for lag, _ in waits)
    number = int(asked[-1][1].rpartition("-")[2]) - int(asked[0][1].rpartition("-")[2])
    one = {
        "p50": lags[len(lags) // 2],
        "p99": lags[len(lags) * 99 // 100],
        "most": lags[-1],
        "most_at": max(waits)[1],
        "transactions": number / (asked[-1][0] - asked[0][0]),
    }
    told = next((line for line in reversed(done.splitlines()) if line.startswith("tpmC")), "")
    print(
        f"tpcc     {len(TABLES)} tables, {one['transactions']:.0f} transactions/s in the binlog  behind by "
        f"p50 {one['p50']:.2f} s, p99 {one['p99']:.2f} s, at most {one['most']:.2f} s, after {one['most_at']:.0f} s  "
        f"({told})",
        flush=True,
    )
    return one


def _all_read(control: Path) -> bool:
    """Return True if no table of TPC-C waits for rows of its snapshot."""
    if not commits(control):
        return False
    states = DeltaTable(control).to_pyarrow_table(columns=["state"])["state"].to_pylist()
    return len(states) >= len(TABLES) and READING not in states


def _write(
    bench: Bench, names: Sequence[str], rate: float, seconds: float, *, first: int
) -> list[tuple[str, float, str]]:
    """Commit a row at a time; return for each the table, when its COMMIT was answered, and its GTID."""
    sent = []
    with bench.server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        begin = time.monotonic()
        for number in range(int(rate * seconds)):
            name = names[number % len(names)]
            cursor.execute(f"INSERT INTO {name} VALUES ({first + number}, 1, 'c', 'p', 1, NOW(3))")
            answered = time.time()
            cursor.execute("SELECT @@last_gtid")
            sent.append((name, answered, str((cursor.fetchone() or ("",))[0])))
            time.sleep(max(0.0, begin + (number + 1) / rate - time.monotonic()))
    return sent


def _check(query: StreamingQuery) -> None:
    if (failure := query.exception()) is not None:
        raise failure
