"""One binlog file, decoded on one core by three decoders in one run: `scripts/bench decode [--workload W] [--json]`.

kernels            ours: file -> scan -> Arrow batches, a decoder for each 16 MB, buffers reused; CRC32 measured
                   apart; the median of five passes
twin               our plain Python reference, on a prefix of the rows
mariadb-binlog -v  the vendor's tool, the whole file, its text thrown away

Every one reads the file: there is no network, no relay log, and no column of the transaction (GTID, times, positions).
It is the inner loop of decoding, and no rate that a user gets: that is `bench pipeline`. Ratios compare CPU seconds a
row: user and system time of the decoder alone, without start-up and compiling. A prefix is cut by time and scaled by
rows, which all count alike: one row an inserted, updated or deleted row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.fixtures.mariadb import MariaDb
from tools.bench.kit.workloads import OPTIONS, WORKLOADS, binlog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOOL_TARGET = 10.0
WIDE_TARGET = 5.0


def run_decoder(name: str, **arguments: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "tools.bench.decode.decoders", name, json.dumps(arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def vendor_tool(server: MariaDb, path: Path) -> dict[str, Any]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([server.binary("mariadb-binlog"), "-v", path], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"bytes": path.stat().st_size, "wall": time.perf_counter() - start, "cpu": cpu}


def measure(workload: str, megabytes: int, seconds: float, shape: str, version: str | None) -> dict[str, Any]:
    path = binlog(workload, megabytes, version=version)
    with MariaDb(version, *OPTIONS) as server:
        everywhere = os.sched_getaffinity(0)  # one core for the decoders
        os.sched_setaffinity(0, {max(everywhere)})
        try:
            found = {
                "kernels": run_decoder("kernels", path=str(path), shape=shape),
                "twin": run_decoder("twin", path=str(path), seconds=seconds),
                "mariadb-binlog -v": vendor_tool(server, path),
            }
        finally:
            os.sched_setaffinity(0, everywhere)
    ours = found["kernels"]
    found["mariadb-binlog -v"]["rows"] = ours["rows"]
    for one in found.values():
        one["rows_per_second"] = one["rows"] / one["wall"]
        one["rows_per_cpu_second"] = one["rows"] / one["cpu"]
        one["mb_per_cpu_second"] = one["bytes"] / one["cpu"] / 1e6
        one["share_of_rows"] = one["rows"] / ours["rows"]
    ratios = {
        name: ours["rows_per_cpu_second"] / one["rows_per_cpu_second"] for name, one in found.items() if one is not ours
    }
    return {
        "workload": workload,
        "shape": shape,
        "bytes": path.stat().st_size,
        "decoders": found,
        "cpu_ratio": ratios,
        "target": targets(workload),
        "reached": all(ratios[name] >= target for name, target in targets(workload).items()),
    }


def targets(workload: str) -> dict[str, float]:
    return {"mariadb-binlog -v": WIDE_TARGET if workload == "wide" else TOOL_TARGET}


def report(result: dict[str, Any]) -> None:
    ours = result["decoders"]["kernels"]
    megabytes = result["bytes"] / 1e6
    print(f"{result['workload']}: {megabytes:.0f} MB of binlog, {ours['rows']:,} rows, shape {result['shape']}")
    print(f"{'':26}      rows/s  rows/CPU s  MB/CPU s    CPU s    rows   ours is  wanted")
    for name, one in result["decoders"].items():
        line = f"{name:26}{one['rows_per_second']:12,.0f}{one['rows_per_cpu_second']:12,.0f}"
        line += f"{one['mb_per_cpu_second']:10,.1f}{one['cpu']:9.2f}{one['share_of_rows']:8.1%}"
        if name in result["cpu_ratio"]:
            line += f"{result['cpu_ratio'][name]:9,.1f}x"
        if name in result["target"]:
            line += f"{result['target'][name]:7,.0f}x"
        print(line)
    print(
        f"CRC32 verification of the whole file: {ours['crc_cpu']:.2f} CPU s more "
        f"({ours['bytes'] / ours['crc_cpu'] / 1e6:,.0f} MB/s); "
        f"first range in a new process: {ours['first_range_cpu']:.2f} CPU s"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench decode", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--mb", type=int, default=300, help="size of the binlog in 10^6 bytes (default 300)")
    parser.add_argument("--shape", choices=("envelope", "flat", "variant"), default="envelope")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for the reference decoder, which reads a prefix (default 10)"
    )
    parser.add_argument("--version", help="the MariaDB that makes the binlog and whose tool reads it, such as 10.11")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(argv)
    names = list(WORKLOADS) if options.workload == "all" else [options.workload]
    results = []
    for name in names:
        results.append(measure(name, options.mb, options.seconds, options.shape, options.version))
        report(results[-1])
    if options.json:
        print(
            json.dumps(
                results[0]
                if len(results) == 1
                else {"workloads": results, "reached": all(r["reached"] for r in results)}
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
