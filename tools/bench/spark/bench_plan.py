"""What planning costs on the driver: `scripts/bench plan [--files N] [--megabytes N] [--only files|large] [--json]`.

files   a query over a daemon's relay log of 10 files, and of 10 000 (--files): each call that Spark makes, cold and
        warm, as often as PASSES, the median; and the ratio of the two, by the clock and in CPU time
large   one transaction of 1 GB (--megabytes): cutting it into partitions, and decoding these with one process and with
        one a core, against decoding it undivided; wall and CPU seconds

The relay logs are written by our own writer under .cache/bench/plan, without a server.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import struct
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from replica.protocol.constants import EventType
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from streaming_source.offsets.offset import SourceOffset
from streaming_source.options.source_options import SourceOptions
from streaming_source.planning.open_planner import open_planner
from streaming_source.ranges.cutting import PartitionSize, RangeCutter
from streaming_source.ranges.places import OffsetPlace
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import read_changes
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import Column, image, rows, table_map
from tests.kit.relay.driving import receive
from tools.bench.kit.workloads import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

FOLDER = CACHE / "plan"
PASSES = 9
FEW = 10
TABLES = SelectedTables(("*.*",), {})
PLAN = ReadPlan("variant", TABLES, None, "server")
COLUMNS = [Column("id", 3), Column("k", 3), Column("c", 254, b"\xfe\x78"), Column("pad", 254, b"\xfe\x3c")]
ROWS_AN_EVENT = 41  # some 8 KB, as servers make them
FILES_AT_ONCE = 500


def write_files(folder: Path, count: int) -> None:
    """A relay log of so many files, a transaction each."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    primary = Primary()
    with RelayWriter.open(folder, start=GtidPosition()) as writer:
        for first in range(1, count + 1, FILES_AT_ONCE):
            primary.events.clear()
            for number in range(first, min(first + FILES_AT_ONCE, count + 1)):
                primary.open_file(f"bin.{number:06d}")
                primary.transaction(Gtid(0, 1, number))
            receive(writer, primary.wire())


def time_files(folder: Path, count: int) -> dict[str, tuple[float, float]]:
    """Milliseconds a call, by the clock and of CPU time, by name."""
    write_files(folder, count)
    times: dict[str, list[tuple[float, float]]] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        wall, cpu, result = _timed(call)
        times.setdefault(name, []).append((wall * 1e3, cpu * 1e3))
        return result

    middle = GtidPosition.parse(f"0-1-{count // 2}")
    for _ in range(PASSES):
        for start in ("latest", "earliest", str(middle)):
            name = "position" if start == str(middle) else start
            options = {"tables": "*.*", "relayDir": str(folder), "startingPosition": start, "maxBytesPerTrigger": "600"}
            planner = open_planner(SourceOptions.parse(options), PLAN)
            offset = timed(f"initialOffset {name}, cold", planner.initial_offset)
            planner.latest_offset(offset, bounded=True)
            if name != "latest":
                end = timed(f"latestOffset {name}, first", lambda: planner.latest_offset(offset, bounded=True))  # noqa: B023
                timed(f"partitions {name}", lambda: planner.partitions(offset, end))  # noqa: B023
                end = timed(f"latestOffset {name}, next", lambda: planner.latest_offset(end, bounded=True))  # noqa: B023
                timed(f"reportLatestOffset {name}, first", planner.report)
                timed(f"reportLatestOffset {name}, next", planner.report)
                timed(f"commit {name}", lambda: planner.commit(end))  # noqa: B023
            planner.close()
            shutil.rmtree(folder / "readers")
        again = open_planner(SourceOptions.parse(options), PLAN)
        begin, end = (SourceOffset(p, p) for p in (middle, GtidPosition.parse(f"0-1-{count // 2 + 1}")))
        timed("partitions after a restart, cold", lambda: again.partitions(begin, end))  # noqa: B023
        again.close()
        shutil.rmtree(folder / "readers")
    timed("opening the writer", lambda: RelayWriter.open(folder).close())
    return {
        name: (statistics.median(wall for wall, _ in found), statistics.median(cpu for _, cpu in found))
        for name, found in times.items()
    }


def compare_files(most: int) -> dict[str, Any]:
    found = {count: time_files(FOLDER / f"files-{count}", count) for count in (FEW, most)}
    print(
        f"\nmilliseconds a call, median of {PASSES}: by the clock with {FEW} files, {most} files, ratio; CPU time alike"
    )
    for name, few in found[FEW].items():
        many = found[most][name]
        columns = "   ".join(f"{a:13.3f} {b:9.3f} {b / max(a, 1e-3):6.2f}" for a, b in zip(few, many, strict=True))
        print(f"{name:36}{columns}")
    return {str(count): times for count, times in found.items()}


def write_large(folder: Path, megabytes: int) -> None:
    """One transaction of so many 10^6 bytes, kept for the next run."""
    if folder.exists():
        return
    (unfinished := folder.with_suffix(".unfinished")).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(unfinished)
    primary = Primary()
    with RelayWriter.open(unfinished, start=GtidPosition()) as writer:
        primary.open_file()
        primary.begin(Gtid(0, 1, 1))
        primary.event(EventType.ANNOTATE_ROWS, b"INSERT INTO sbtest SELECT ...", inside=True)
        primary.event(EventType.TABLE_MAP, table_map(1, COLUMNS, table="sbtest"), inside=True)
        relay = receive(writer, primary.wire())
        values = b"".join(
            image([struct.pack("<i", n), struct.pack("<i", n), b"\x70" + b"c" * 112, b"\x30" + b"p" * 48])
            for n in range(ROWS_AN_EVENT)
        )
        primary.events.clear()
        primary.event(EventType.WRITE_ROWS_V1, rows(1, len(COLUMNS), values, flags=0), inside=True)
        count = megabytes * 1_000_000 // len(primary.events[-1])
        pieces = primary.wire() * 500
        for _ in range(count // 500):
            _more(relay, pieces)
        primary.events.clear()
        primary.event(EventType.WRITE_ROWS_V1, rows(1, len(COLUMNS), values), inside=True)
        primary.xid(1)
        _more(relay, primary.wire())
    unfinished.rename(folder)


def _more(receiver: Any, wire: bytes) -> None:
    rest = memoryview(wire)
    while rest:
        space = receiver.space()
        piece = rest[: len(space)]
        space[: len(piece)] = piece
        rest = rest[len(piece) :]
        receiver.received(len(piece))
        receiver.publish()


def read(partition: ChangePartition) -> tuple[int, float]:
    """Rows, and CPU seconds they took."""
    before = time.process_time()
    return sum(batch.num_rows for batch in read_changes(partition, PLAN)), time.process_time() - before


def warm(_: int) -> int:
    """Load kernels in a process of the pool."""
    time.sleep(0.5)  # so that each process gets one
    return os.getpid()


def compare_large(megabytes: int, cores: int) -> dict[str, Any]:
    folder = FOLDER / f"large-{megabytes}"
    write_large(folder, megabytes)
    log = RelayLog(folder)
    head = log.head()
    first = log.locate(GtidPosition())
    if head is None or first is None:
        raise RuntimeError(f"{folder} holds no transaction")
    places = OffsetPlace.exactly(first), OffsetPlace.exactly(head.location)
    offsets = SourceOffset(GtidPosition(), GtidPosition()), SourceOffset(head.position, head.position)
    cutter = RangeCutter(TABLES, inline=False, size=PartitionSize(cores))
    cutter.partitions(log, *places, *offsets)  # compiles, and brings the file into memory
    cutter = RangeCutter(TABLES, inline=False, size=PartitionSize(cores))
    planning = [_timed(lambda: cutter.partitions(log, *places, *offsets)) for _ in range(2)]  # then it is known
    partitions: list[ChangePartition] = planning[0][2]
    (whole,) = log.ranges(first, head.location, 1 << 62)
    undivided = ChangePartition((MappedRange(*whole),))
    result: dict[str, Any] = {
        "megabytes": (whole.end - whole.start) / 1e6,
        "partitions": len(partitions),
        "planning_s": planning[0][0],
        "planning_cpu_s": planning[0][1],
        "planning_again_s": planning[1][0],
    }
    context = get_context("spawn")
    for name, parts, processes in (
        ("undivided", [undivided], 1), ("one process", partitions, 1), (f"{cores} processes", partitions, cores),
    ):  # fmt: skip
        with ProcessPoolExecutor(processes, context) as pool:
            list(pool.map(warm, range(processes)))
            list(pool.map(read, partitions[:processes]))
            wall, _, counts = _timed(lambda: list(pool.map(read, parts)))  # noqa: B023
        result[name] = {
            "wall_s": wall, "cpu_s": sum(cpu for _, cpu in counts), "rows": sum(rows for rows, _ in counts),
        }  # fmt: skip
    print(
        f"\none transaction of {result['megabytes']:.0f} MB, {result['one process']['rows']} rows: "
        f"{len(partitions)} partitions planned in {planning[0][0]:.2f} s ({planning[0][1]:.2f} s CPU), "
        f"again in {planning[1][0] * 1e3:.0f} ms"
    )
    for name in ("undivided", "one process", f"{cores} processes"):
        print(f"  decoded {name:14} {result[name]['wall_s']:6.2f} s wall, {result[name]['cpu_s']:6.2f} s CPU")
    result["ratio"] = result["one process"]["wall_s"] / result[f"{cores} processes"]["wall_s"]
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"  {cores} processes are {result['ratio']:.2f} times as fast as one; the largest took {children:.0f} MB")
    result["peak_mb"] = children
    return result


def _timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    began, cpu = time.perf_counter(), time.process_time()
    result = call()
    return time.perf_counter() - began, time.process_time() - cpu, result


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench plan", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("files", "large"))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    result: dict[str, Any] = {}
    if given.only != "large":
        result["files"] = compare_files(given.files)
    if given.only != "files":
        result["large"] = compare_large(given.megabytes, given.cores)
    if given.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
