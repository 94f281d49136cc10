"""Receive -> relay log, against the vendor's own tool and against a receive loop that throws the bytes away.

    relay   our session: deframe, CRC32 of every event, group ends, index, relay files, and all of it fsynced at the end
    tool    mariadb-binlog --raw --read-from-remote-server, writing to the same disk
    bare    the same login and socket, bytes counted and dropped: what any client could reach at best

One server, one run, the three in turn; medians, also of the ratios. Wanted: relay/tool at least 3 on small
transactions and 1 on large events, relay/bare at least 0.6. The tool fsyncs nothing. CPU seconds are the client's own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replica.errors import ReplicaError
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.replicas import replica_config
from tools.bench.kit.workloads import CACHE
from tools.bench.replica.receiving import Run, receive_bare, receive_relay
from tools.bench.replica.relay_workloads import LARGE, SERVER_OPTIONS, SMALL, Span, write

if TYPE_CHECKING:
    from collections.abc import Sequence

WANTED_TOOL = {**dict.fromkeys(SMALL, 3.0), **dict.fromkeys((*LARGE, "wide"), 1.0)}
WANTED_BARE = 0.6


def run_relay(server: MariaDb, span: Span, folder: Path) -> Run:
    return receive_relay(replica_config(server), span.start, span.end, folder)


def run_bare(server: MariaDb, span: Span, wanted: int) -> Run:
    return receive_bare(replica_config(server), span.start, wanted)


def run_tool(server: MariaDb, span: Span, folder: Path) -> Run:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.perf_counter()
    subprocess.run(
        [
            server.binary("mariadb-binlog"),
            "--no-defaults",
            "--raw",
            "--read-from-remote-server",
            "--skip-ssl",
            f"--host={server.host}",
            f"--port={server.port}",
            f"--user={server.user}",
            f"--password={server.password}",
            f"--result-file={folder}/",
            span.file,
        ],
        check=True,
        capture_output=True,
    )
    wall = time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    size = (folder / span.file).stat().st_size
    return Run(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, size)


def _in_fresh_folder(run: Any, *arguments: Any) -> Run:
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="relay-", dir=CACHE))
    os.sync()  # no run pays for the pages of the one before
    try:
        result: Run = run(*arguments, folder)
        return result
    finally:
        shutil.rmtree(folder)


def measure(server: MariaDb, span: Span, repeats: int) -> dict[str, Any]:
    # Unmeasured: kernels are loaded, and the page cache has pages to reuse. A virtual machine's host gives it memory
    # that it never used before at a tenth of a write's speed, and that would be all there is to measure.
    _in_fresh_folder(run_relay, server, span)
    runs: dict[str, list[Run]] = {"relay": [], "tool": [], "bare": []}
    for _ in range(repeats):
        runs["relay"].append(_in_fresh_folder(run_relay, server, span))
        runs["bare"].append(run_bare(server, span, runs["relay"][-1].received_bytes))
        runs["tool"].append(_in_fresh_folder(run_tool, server, span))
    best = {kind: _median(of) for kind, of in runs.items()}
    rate = {kind: run.received_bytes / run.seconds for kind, run in best.items()}

    def over(other: str) -> float:
        # Runs of one turn are neighbours in time: their ratio suffers least from what else the machine does.
        pairs = zip(runs["relay"], runs[other], strict=True)
        return statistics.median(
            (ours.received_bytes / ours.seconds) / (theirs.received_bytes / theirs.seconds) for ours, theirs in pairs
        )

    return {
        "workload": span.name,
        "runs": {kind: {**asdict(run), "megabytes_per_second": rate[kind] / 1e6} for kind, run in best.items()},
        "relay_over_tool": over("tool"),
        "relay_over_bare": over("bare"),
        "cpu_tool_over_relay": best["tool"].cpu_seconds / best["relay"].cpu_seconds,
        "wanted_over_tool": WANTED_TOOL[span.name],
        "wanted_over_bare": WANTED_BARE,
    }


def _median(runs: list[Run]) -> Run:
    middle = statistics.median_low(run.seconds for run in runs)
    return next(run for run in runs if run.seconds == middle)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench relay", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--megabytes", type=int, default=300, help="binlog of each workload (10^6 bytes)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--server", default=None, help="MariaDB version, for example 10.11")
    parser.add_argument("--workload", action="append", choices=[*SMALL, *LARGE], help="repeatable; default all")
    options = parser.parse_args(argv)
    results = []
    for name in options.workload or [*SMALL, *LARGE]:
        with MariaDb(options.server, *SERVER_OPTIONS) as server:
            span = write(server, name, options.megabytes)
            try:
                results.append(measure(server, span, options.repeats))
            except ReplicaError as error:
                raise SystemExit(f"{name}: {error}") from error
            version = server.version
        print(_line(results[-1]), flush=True)
    met = all(
        r["relay_over_tool"] >= r["wanted_over_tool"] and r["relay_over_bare"] >= r["wanted_over_bare"] for r in results
    )
    print(f"MariaDB {version}; wanted ratios {'reached' if met else 'NOT reached'}")
    if options.json:
        print(json.dumps({"benchmark": "relay", "server": version, "met": met, "results": results}))
    return 0


def _line(result: dict[str, Any]) -> str:
    parts = [f"{result['workload']:7}"]
    for kind, run in result["runs"].items():
        parts.append(f"{kind} {run['megabytes_per_second']:6.0f} MB/s {run['cpu_seconds']:5.2f} CPU s")
    parts.append(f"relay/tool {result['relay_over_tool']:.2f} (wanted {result['wanted_over_tool']:.0f})")
    parts.append(f"relay/bare {result['relay_over_bare']:.2f} (wanted {result['wanted_over_bare']})")
    return "  ".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
