"""Whether speed went back since it was recorded: small versions of the ratios, against tests/bench/guard.toml.

A ratio is CPU time of a peer divided by ours, over the same binlog in the same run, so that machine and load count for
little. One below half of what was recorded ends this with exit code 1: less is the noise of a small binlog. A peer that
cannot be had here is told and not judged. `--record` writes the table anew, after a change that is meant.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.bench_pipeline import BARE, OURS, TOOL, measure
from tests.bench.relay_workloads import SERVER_OPTIONS, write
from tests.bench.workloads import WORKLOADS
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Sequence

    Table = dict[str, dict[str, float]]

RECORDED = Path(__file__).with_name("guard.toml")
LOWEST_SHARE = 0.5
MEGABYTES, ROUNDS, SECONDS = 40, 3, 1.0
PEERS = (BARE, "python-mysql-replication", "go-mysql", "mysql-binlog-connector-java", TOOL)
RECEIVE = "receive only, against receiving and storing"


def measured() -> Table:
    """The ratios of every workload; higher is better for us."""
    found: Table = {}
    for name in WORKLOADS:
        with MariaDb(None, *SERVER_OPTIONS) as server:
            result = measure(server, write(server, name, MEGABYTES), ROUNDS, SECONDS, PEERS)
        found[name] = {peer: ratio["cpu"] for peer, ratio in result["ratio"].items() if peer != BARE}
        clients = result["contenders"]
        found[name][RECEIVE] = clients[BARE]["cpu"] / clients[OURS]["receive_cpu"]
    return found


def judged(found: Table, recorded: Table) -> list[tuple[str, bool]]:
    """A line for each recorded ratio, and whether it holds."""
    lines = []
    for workload, ratios in recorded.items():
        for peer, before in ratios.items():
            now = found.get(workload, {}).get(peer)
            holds = now is None or now >= before * LOWEST_SHARE
            told = "not measured here" if now is None else f"{now:8.2f}{'' if holds else '  TOO LOW'}"
            lines.append((f"{workload:7}{peer:45}recorded {before:8.2f}  now {told}", holds))
    return lines


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench guard", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--record", action="store_true", help="write the table that later runs are compared with")
    options = parser.parse_args(argv)
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
    if options.json:
        print(json.dumps({"benchmark": "guard", "ratio": found, "held": held}))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
