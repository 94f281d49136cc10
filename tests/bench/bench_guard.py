"""Whether speed went back since it was recorded: small versions of the ratios, against tests/bench/guard.toml.

A ratio is CPU time of a peer divided by ours, over the same binlog in the same run, so that machine and load count for
little: those of `bench pipeline`, `bench decode` and `bench relay`, and of `bench task` what the images alone take of
what whole batches take. One below half of what was recorded (three quarters of it where both sides are ours, in one
process) ends this with exit code 1: less is the noise of a small binlog. A peer that cannot be had here is told and not
judged. `--record` writes the table anew, after a change that is meant.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import bench_decode, bench_relay
from tests.bench.bench_pipeline import BARE, OURS, TOOL, measure
from tests.bench.bench_task import Task, cpu_seconds
from tests.bench.relay_workloads import SERVER_OPTIONS, write
from tests.bench.workloads import WORKLOADS, binlog
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Sequence

    Table = dict[str, dict[str, float]]

RECORDED = Path(__file__).with_name("guard.toml")
LOWEST_SHARE, LOWEST_SHARE_OF_OURS = 0.5, 0.75
MEGABYTES, ROUNDS, SECONDS = 40, 3, 1.0
PEERS = (BARE, "python-mysql-replication", "go-mysql", "mysql-binlog-connector-java", TOOL)
RECEIVE = "receive only, against receiving and storing"
RELAY = "mariadb-binlog --raw, against receiving and storing"
DECODE = {TOOL: "mariadb-binlog -v, against decoding one file", "twin": "the reference, against decoding one file"}
TASK = "images alone, against batches as {}"
SHAPES = ("envelope", "flat")
PASSES = 5


def measured() -> Table:
    """The ratios of every workload; higher is better for us."""
    return {name: _live(name) | _decoded(name) | _batches(name) for name in WORKLOADS}


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


def judged(found: Table, recorded: Table) -> list[tuple[str, bool]]:
    """A line for each recorded ratio, and whether it holds."""
    lines = []
    of_ours = {TASK.format(shape) for shape in SHAPES}
    for workload, ratios in recorded.items():
        for peer, before in ratios.items():
            now = found.get(workload, {}).get(peer)
            lowest = before * (LOWEST_SHARE_OF_OURS if peer in of_ours else LOWEST_SHARE)
            holds = now is None or now >= lowest
            told = "not measured here" if now is None else f"{now:8.2f}{'' if holds else '  TOO LOW'}"
            lines.append((f"{workload:7}{peer:53}recorded {before:8.2f}  now {told}", holds))
    return lines


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench guard", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--record", action="store_true", help="write the table that later runs are compared with")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    found = measured()
    if options.record:
        lines = []
        for workload, ratios in found.items():
            lines += [f"[{workload}]", *(f'"{peer}" = {ratio:.3g}' for peer, ratio in ratios.items()), ""]
        RECORDED.write_text("\n".join(lines), encoding="utf-8")
    verdict = judged(found, tomllib.loads(RECORDED.read_text(encoding="utf-8")))
    for line, _ in verdict:
        print(line)
    held = all(holds for _, holds in verdict)
    print(f"{'all held' if held else 'NOT all held'}; {time.monotonic() - begun:.0f} s")
    if options.json:
        print(json.dumps({"benchmark": "guard", "ratio": found, "held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
