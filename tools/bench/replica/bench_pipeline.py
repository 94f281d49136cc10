"""From the network to row changes with all columns, as a user gets them: `scripts/bench pipeline [--json]`.

One server, one binlog file of each workload, every contender once a round, each in a process of its own. CPU seconds
are the client's, user and system, of all its threads, without the start of the process, which is counted apart.
Compiled clients read the file twice and the second pass counts: what compiles while it runs is warm then, as in a
process that runs for days. Clients that would need minutes read for some seconds, and their rows are a prefix;
the figures of Debezium, whose start takes more than many rows do, begin when its task has started. Ratios are CPU
seconds a row change, divided within a round; their median, lowest and highest.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.peer_programs import (
    answer,
    debezium_program,
    go_program,
    java_answer,
    java_program,
    python_packages,
)
from tools.bench.kit.workloads import WORKLOADS
from tools.bench.replica.relay_workloads import SERVER_OPTIONS, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tools.bench.replica.relay_workloads import Span

OURS = "ours"
BARE = "receive only"
TOOL = "mariadb-binlog -v"
DEBEZIUM = "Debezium Embedded"
DOES = {
    OURS: "CRC32 verified, relay log with index written and fsynced, Arrow batches of the envelope: images before and "
    "after, GTID, times, positions",
    BARE: "bytes counted and dropped: no CRC32, nothing stored, nothing decoded",
    "python-mysql-replication": "no CRC32, nothing stored, a dict for each row image; no GTID",
    "asyncmy": "no CRC32, nothing stored, a dict for each row image; no GTID",
    "go-mysql": "CRC32 verified, nothing stored, a slice of values for each row image; the GTID is an event apart",
    "mysql-binlog-connector-java": "no CRC32, nothing stored, an array of values for each row image; the GTID is an "
    "event apart",
    DEBEZIUM: "no CRC32, nothing stored, a SourceRecord of structs for each row change: images before and after, GTID, "
    "times, position; no transaction events",
    TOOL: "no CRC32, nothing stored, text of the images, thrown away",
}
PASSES = 2
CPU_SECONDS = 10  # for each pass of Debezium: less, and its code is not compiled yet
PEERS = [name for name in DOES if name != OURS]
PREFIXES = ("python-mysql-replication", "asyncmy", DEBEZIUM)  # they may end before the last row
GRANTS = "REPLICATION SLAVE, SELECT, BINLOG MONITOR"  # Debezium asks for the list of binlogs


class Contenders:
    """Every client that can be had, over one span of a server's binlog."""

    def __init__(self, server: MariaDb, span: Span, seconds: float, wanted: Sequence[str]) -> None:
        end = int(server.sql("SHOW MASTER STATUS")[0][1])
        user, password = server.add_user(grants=GRANTS)
        self._server, self._seconds = server, seconds
        self._asked: dict[str, Any] = {
            "host": server.host,
            "port": server.port,
            "user": user,
            "password": password,
            "file": span.file,
            "from": str(span.start),
            "until": str(span.end),
            "end": end,
            "passes": PASSES,
        }
        self.rows = 0
        self.ways = self._ways(wanted)

    def _ways(self, wanted: Sequence[str]) -> dict[str, Callable[[], dict[str, Any]]]:
        ways: dict[str, Callable[[], dict[str, Any]]] = {
            OURS: lambda: self._python(OURS),
            BARE: lambda: self._python(BARE),
            "python-mysql-replication": lambda: self._python("python-mysql-replication", seconds=self._seconds),
            TOOL: self._tool,
        }
        if "asyncmy" in wanted and (packages := python_packages()):
            ways["asyncmy"] = lambda: self._python("asyncmy", seconds=self._seconds, packages=str(packages))
        if "go-mysql" in wanted and (program := go_program()):
            ways["go-mysql"] = lambda: answer([str(program / "peer"), json.dumps(self._asked)])
        if "mysql-binlog-connector-java" in wanted and (classes := java_program()):
            names = ("host", "port", "user", "password", "file", "end", "passes")
            ways["mysql-binlog-connector-java"] = lambda: self._java(classes, "Connector", names)
        if DEBEZIUM in wanted and (engine := debezium_program()):
            self._asked["cpu_seconds"] = CPU_SECONDS
            names_of_engine = ("host", "port", "user", "password", "rows", "cpu_seconds", "passes")
            ways[DEBEZIUM] = lambda: self._java(engine, "Embedded", names_of_engine)
        return {name: ways[name] for name in DOES if name in ways and name in (OURS, *wanted)}

    def _python(self, name: str, **more: Any) -> dict[str, Any]:
        result = answer(
            [sys.executable, "-m", "tools.bench.replica.pipeline_clients", name, json.dumps(self._asked | more)]
        )
        if name == OURS:
            last = result["passes"][-1]
            self._asked |= {"rows": last["rows"], "received_bytes": last["received_bytes"]}
            self.rows = last["rows"]
        return result

    def _java(self, folder: Path, name: str, arguments: Sequence[str]) -> dict[str, Any]:
        return java_answer(folder, name, *(self._asked[one] for one in arguments))

    def _tool(self) -> dict[str, Any]:
        command = [self._server.binary("mariadb-binlog"), "--no-defaults", "-v", "--read-from-remote-server"]
        command += ["--skip-ssl", f"--host={self._asked['host']}", f"--port={self._asked['port']}"]
        command += [f"--user={self._asked['user']}", f"--password={self._asked['password']}", self._asked["file"]]
        before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"start_cpu": 0.0, "passes": [{"rows": self.rows, "cpu": cpu, "wall": time.perf_counter() - wall}]}


def measure(server: MariaDb, span: Span, rounds: int, seconds: float, wanted: Sequence[str]) -> dict[str, Any]:
    contenders = Contenders(server, span, seconds, wanted)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders.ways}
    for _ in range(rounds):
        for name, run in contenders.ways.items():
            result = run()
            last = result["passes"][-1]
            is_prefix = name in PREFIXES and last["rows"] < contenders.rows
            if last["rows"] != contenders.rows and not is_prefix:
                raise SystemExit(f"{name} gave {last['rows']} row changes of {contenders.rows}")
            found[name].append(last | {"start_cpu": result["start_cpu"], "first_cpu": result["passes"][0]["cpu"]})
    return {
        "workload": span.name,
        "bytes": contenders._asked["end"],
        "rows": contenders.rows,
        "contenders": {name: _summary(runs) for name, runs in found.items()},
        "ratio": {name: _ratio(found[OURS], runs) for name, runs in found.items() if name != OURS},
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    def middle(figure: str) -> float:
        return statistics.median(run[figure] for run in runs)

    cpu = [run["cpu"] / run["rows"] * 1e6 for run in runs]
    wall = statistics.median(run["rows"] / run["wall"] for run in runs)
    parts = {name: middle(name) for name in ("receive_cpu", "decode_cpu") if name in runs[0]}
    return {
        "rows": runs[-1]["rows"],
        "cpu": middle("cpu"),
        "wall": middle("wall"),
        "cpu_us_a_row": statistics.median(cpu),
        "cpu_us_a_row_spread": [min(cpu), max(cpu)],
        "rows_a_second": wall,
        "first_pass_cpu": middle("first_cpu"),
        "start_cpu": middle("start_cpu"),
        **parts,
    }


def _ratio(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, Any]:
    def each(figure: str) -> list[float]:
        rounds = zip(ours, theirs, strict=True)
        return [(other[figure] / other["rows"]) / (own[figure] / own["rows"]) for own, other in rounds]

    cpu, wall = each("cpu"), each("wall")
    return {"cpu": statistics.median(cpu), "cpu_spread": [min(cpu), max(cpu)], "wall": statistics.median(wall)}


def report(result: dict[str, Any]) -> None:
    print(f"{result['workload']}: {result['bytes'] / 1e6:.0f} MB of binlog, {result['rows']:,} row changes")
    print(f"{'':28} CPU us a row (lowest-highest)  CPU s  wall s   rows/s  start CPU s  x ours by CPU   by wall")
    for name, one in result["contenders"].items():
        low, high = one["cpu_us_a_row_spread"]
        spread = f"({low:.2f}-{high:.2f})"
        line = f"{name:28}{one['cpu_us_a_row']:9.2f} {spread:>17}{one['cpu']:11.2f}{one['wall']:8.2f}"
        line += f"{one['rows_a_second']:11,.0f}{one['start_cpu']:9.2f}"
        if name in result["ratio"]:
            ratio = result["ratio"][name]
            low, high = ratio["cpu_spread"]
            line += f"{ratio['cpu']:10.2f} ({low:.2f}-{high:.2f}){ratio['wall']:8.2f}"
        print(line)
    ours = result["contenders"][OURS]
    received, bare = ours["receive_cpu"], result["contenders"].get(BARE)
    against = f", {received / bare['cpu']:.1f} times receiving only" if bare else ""
    print(f"ours: {received:.2f} CPU s into the relay log{against}; {ours['decode_cpu']:.2f} from there to Arrow")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench pipeline", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--megabytes", type=float, default=150, help="binlog of each workload (10^6 bytes)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="for each Python client (default 3)")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="repeatable; default all")
    parser.add_argument("--peer", action="append", choices=PEERS, help="repeatable; default all")
    parser.add_argument("--version", help="MariaDB version, for example 10.11")
    options = parser.parse_args(argv)
    wanted = options.peer or PEERS
    results = []
    for name in options.workload or WORKLOADS:
        with MariaDb(options.version, *SERVER_OPTIONS) as server:
            span = write(server, name, options.megabytes)
            results.append(measure(server, span, options.rounds, options.seconds, wanted))
            version = server.version
        report(results[-1])
        sys.stdout.flush()
    took_part = results[0]["contenders"]
    for name in took_part:
        print(f"{name}: {DOES[name]}")
    load = os.getloadavg()[0]
    print(f"MariaDB {version}; left out: {', '.join(set(wanted) - set(took_part)) or 'none'}; load now {load:.1f}")
    if options.json:
        print(
            json.dumps(
                {
                    "benchmark": "pipeline",
                    "server": version,
                    "load": load,
                    "does": {name: DOES[name] for name in took_part},
                    "left_out": sorted(set(wanted) - set(took_part)),
                    "ratio": {r["workload"]: {peer: one["cpu"] for peer, one in r["ratio"].items()} for r in results},
                    "results": results,
                }
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
