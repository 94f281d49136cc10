"""`dump` and `mariadb-binlog -vv` on the same files in one run: `scripts/bench dump [--workload W] [--json]`.

Both write their text to /dev/null, on one core, started anew for each pass. Figures are CPU seconds (user and system)
of the whole process, start-up included, medians of the passes. Ours are `dump --json` and `dump --count`; of the tool
-vv and the plain listing.
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

from tests.fixtures.installation import installation
from tools.bench.kit.workloads import WORKLOADS, binlog

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS = "dump --json"
TOOL = "mariadb-binlog -vv"


def measure_once(command: Sequence[str]) -> tuple[float, float]:
    """(CPU seconds, elapsed seconds) of a process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - start


def measure(workload: str, megabytes: int, passes: int, version: str | None) -> dict[str, Any]:
    path = str(binlog(workload, megabytes, version=version))
    tool = installation(version).binary("mariadb-binlog")
    replica = [sys.executable, "-m", "replica", "dump"]
    commands = {
        OURS: [*replica, "--json", path],
        "dump --count": [*replica, "--count", path],
        TOOL: [tool, "--base64-output=DECODE-ROWS", "-vv", path],
        "mariadb-binlog": [tool, path],
    }
    for name in (OURS, "dump --count"):
        measure_once(commands[name])  # kernels are compiled by now
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(everywhere)})
    try:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(passes):
            for name, command in commands.items():
                found[name].append(measure_once(command))
    finally:
        os.sched_setaffinity(0, everywhere)
    figures = {
        name: {"cpu": statistics.median(cpu for cpu, _ in runs), "wall": statistics.median(wall for _, wall in runs)}
        for name, runs in found.items()
    }
    ratio = figures[TOOL]["cpu"] / figures[OURS]["cpu"]
    size = os.stat(path).st_size  # noqa: PTH116
    return {"workload": workload, "bytes": size, "programs": figures, "cpu_ratio": ratio, "reached": ratio >= 1}


def report(result: dict[str, Any]) -> None:
    print(f"{result['workload']}: {result['bytes'] / 1e6:.0f} MB of binlog")
    print(f"{'':22}    CPU s  elapsed s  MB/CPU s")
    for name, one in result["programs"].items():
        print(f"{name:22}{one['cpu']:9.2f}{one['wall']:11.2f}{result['bytes'] / one['cpu'] / 1e6:10.1f}")
    print(f"{OURS} takes 1/{result['cpu_ratio']:.1f} of the CPU time of {TOOL}")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench dump", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="narrow")
    parser.add_argument("--mb", type=int, default=100, help="size of the binlog in 10^6 bytes (default 100)")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--version", help="the MariaDB that makes the binlog and whose tool is run, such as 10.11")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(argv)
    names = list(WORKLOADS) if options.workload == "all" else [options.workload]
    results = []
    for name in names:
        results.append(measure(name, options.mb, options.passes, options.version))
        report(results[-1])
    if options.json:
        print(json.dumps(results[0] if len(results) == 1 else {"workloads": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
