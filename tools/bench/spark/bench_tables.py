"""All of many tables as VARIANT, against the same rows in one table: CPU microseconds a row change of a Spark task.

In: two binlogs with the same rows, one after the other in other tables (many_tables.py), in ranges of 8 MB, as small
partitions are, and of 32 MB, as those of a full batch on two cores are. A task reads each range from the mapped file to
RecordBatches, without Spark, in turn over both binlogs; medians, and the most memory that a process of its own had.
Wanted: 1.5 times the CPU time of one table at most, and less than 300 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from replica.rows.scan.scan import scan
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables
from tools.bench.decode.decoders import MAGIC_BYTES
from tools.bench.kit.process_times import peak_bytes
from tools.bench.kit.workloads import DATABASE
from tools.bench.spark.many_tables import binlog_of_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

RANGES_MB = (8, 32)
PLAN = ReadPlan("variant", SelectedTables((f"{DATABASE}.*",), {}), None, "127.0.0.1:3306")


def partitions(path: Path, range_bytes: int) -> list[ChangePartition]:
    """One for each range of whole transactions."""
    ends = scan(np.fromfile(path, np.uint8), checksum=True).groups["end"].tolist()
    return [
        ChangePartition((MappedRange(str(path), start, end, checksum=True, file=path.name),))
        for start, end in _cuts(ends, range_bytes)
    ]


def _cuts(ends: list[int], range_bytes: int) -> Iterator[tuple[int, int]]:
    start = MAGIC_BYTES
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is None or following - start > range_bytes:
            yield start, end
            start = end


def read(parts: list[ChangePartition]) -> tuple[int, float]:
    """Rows, and CPU seconds they took."""
    begin = time.process_time()
    rows = sum(batch.num_rows for part in parts for batch in read_changes(part, PLAN))
    return rows, time.process_time() - begin


def measure(paths: Mapping[int, Path], range_bytes: int, passes: int) -> dict[str, Any]:
    """Compare the binlog of one table with that of many; `paths` has both, by their number of tables."""
    (one, _), (many, _) = paths.items()
    parts = {count: partitions(path, range_bytes) for count, path in paths.items()}
    taken: dict[int, list[float]] = {count: [] for count in parts}
    for turn in range(1 + passes):
        for count, ranges in parts.items():
            rows, seconds = read(ranges)
            if turn:  # the first one compiles, and warms up
                taken[count].append(seconds / rows * 1e6)
    ratios = [after / before for before, after in zip(taken[one], taken[many], strict=True)]
    return {
        "range_mb": range_bytes >> 20,
        "cpu_us_per_row": {str(count): round(statistics.median(costs), 3) for count, costs in taken.items()},
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(min(ratios), 2), round(max(ratios), 2)],
    }


def peak_megabytes(path: Path, range_bytes: int) -> float:
    """The most memory of a process that reads these ranges and nothing else, with what it maps."""
    given = json.dumps([(part.ranges[0].start, part.ranges[0].end) for part in partitions(path, range_bytes)])
    command = [sys.executable, "-m", "tools.bench.spark.bench_tables", "--peak", str(path), given]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _peak(path: str, given: str) -> float:
    for start, end in json.loads(given):
        read([ChangePartition((MappedRange(path, start, end, checksum=True, file="bin.000001"),))])
    return peak_bytes() / (1 << 20)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--peak"]:
        print(_peak(*arguments[1:]))
        return 0
    parser = argparse.ArgumentParser(prog="bench tables", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=200_000, help="in all tables together")
    parser.add_argument("--passes", type=int, default=9)
    options = parser.parse_args(arguments)
    paths = {count: binlog_of_tables(count, options.rows) for count in (1, options.tables)}
    results: list[dict[str, Any]] = []
    for megabytes in RANGES_MB:
        result = measure(paths, megabytes << 20, options.passes)
        result["peak_mb"] = {str(count): round(peak_megabytes(path, megabytes << 20)) for count, path in paths.items()}
        results.append(result)
        print(_line(results[-1], options.tables), flush=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        print(json.dumps({"benchmark": "tables", "tables": options.tables, "results": results}))
    return 0


def _line(result: dict[str, Any], tables: int) -> str:
    one, many = result["cpu_us_per_row"].values()
    memory = " and ".join(f"{peak} MB" for peak in result["peak_mb"].values())
    return (
        f"ranges of {result['range_mb']:2} MB: one table {one:.3f} CPU us a row, {tables} tables {many:.3f}, "
        f"ratio {result['ratio']:.2f} ({result['ratios'][0]:.2f} to {result['ratios'][1]:.2f}); memory {memory}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
