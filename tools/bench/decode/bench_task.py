"""What one Spark task does, in this process and without Spark: CPU microseconds a row change, stage by stage.

In: a workload's binlog, in ranges of 8 MB as a query hands them to its tasks. Each line is a whole task up to a stage:
pages   the range is mapped and each of its pages touched
scan    groups, rows events and table maps are found
decode  row images are in Arrow columns
rows    RecordBatches of the query's schema: images, and what is known of their transactions
sent    the same, written as Spark's worker writes them to its socket

The median of several passes over the whole file. CPU time, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.scan.scan import scan
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import OutputColumn, ValuePolicy
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.rows.reader import BATCH_ROWS, read_changes
from streaming_source.schema.row_schema import TableColumn
from streaming_source.selection.resolver import SelectedTables
from tools.bench.decode.decoders import MAGIC_BYTES
from tools.bench.kit.workloads import BLOB, DATABASE, WORKLOADS, binlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from replica.protocol.rows.table_map import TableMapEvent

RANGE_BYTES = 8 << 20
PAGE_BYTES = 4096
TABLES = (*WORKLOADS, BLOB.name)
SHAPES = ("envelope", "flat", "variant")


def read_plan(table_map: TableMapEvent, shape: Any) -> tuple[ReadPlan, list[OutputColumn] | None]:
    """The plan that a query of the workload's table gives its tasks, and the table's columns where they are typed."""
    output: list[OutputColumn] | None = None
    columns = None
    if shape != "variant":
        output = list(compile_layout(table_map, None, None, ValuePolicy()).outputs)
        columns = tuple(TableColumn(one.name, one.spark) for one in output)
    return ReadPlan(shape, SelectedTables((f"{DATABASE}.t",), {}), columns, "127.0.0.1:3306"), output


class Task:
    """The ranges of one binlog, read in one shape."""

    def __init__(self, path: Path, shape: Any) -> None:
        found = scan(np.fromfile(path, np.uint8), checksum=True)
        self._plan, output = read_plan(parse_table_map(found.table_map_body(0)), shape)
        options = DecodeOptions(shape=shape, batch_rows=BATCH_ROWS, reuse_buffers=True)
        self._decoder = RangeDecoder(self._plan.tables, options, output)
        self._ranges = [MappedRange(str(path), *cut, checksum=True, file="bin.000001") for cut in _cuts(found)]

    def pages(self) -> None:
        for part in self._ranges:
            np.frombuffer(part.data(), np.uint8)[::PAGE_BYTES].sum()

    def scan(self) -> None:
        for part in self._ranges:
            scan(part.data(), checksum=True)

    def decode(self) -> None:
        for part in self._ranges:
            for _ in self._decoder.decode(part.data(), checksum=True):
                pass

    def rows(self) -> int:
        return sum(batch.num_rows for part in self._ranges for batch in self._read(part))

    def sent(self) -> None:
        with pa.OSFile("/dev/null", "wb") as socket:
            for part in self._ranges:
                writer = None
                for batch in self._read(part):
                    wrapped = pa.RecordBatch.from_arrays([batch.to_struct_array()], names=["_0"])
                    writer = writer or pa.RecordBatchStreamWriter(socket, wrapped.schema)
                    writer.write_batch(wrapped)

    def _read(self, part: MappedRange) -> Iterator[pa.RecordBatch]:
        return read_changes(ChangePartition((part,)), self._plan)


def _cuts(found: Any) -> Iterator[tuple[int, int]]:
    start = MAGIC_BYTES
    ends = found.groups["end"].tolist()
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is None or following - start > RANGE_BYTES:
            yield start, end
            start = end


def cpu_seconds(stage: Callable[[], object], passes: int) -> float:
    """The median of some passes."""
    taken = []
    for _ in range(passes):
        begin = time.process_time()
        stage()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench task", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--megabytes", type=int, default=100, help="binlog of each workload (10^6 bytes)")
    parser.add_argument("--workload", action="append", choices=TABLES, help="repeatable; default all")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="repeatable; default all")
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args(argv)
    results = []
    for workload in options.workload or TABLES:
        path = binlog(workload, options.megabytes)
        for shape in options.shape or SHAPES:
            task = Task(path, shape)
            rows = task.rows()  # compiles, and warms up
            stages = {
                stage.__name__: round(cpu_seconds(stage, options.passes) / rows * 1e6, 3)
                for stage in (task.pages, task.scan, task.decode, task.rows, task.sent)
            }
            results.append({"workload": workload, "shape": shape, "rows": rows, "cpu_us_per_row": stages})
            told = "  ".join(f"{stage} {cost:.3f}" for stage, cost in stages.items())
            print(f"{workload:6} {shape:8} {rows:9,} rows  CPU us a row up to: {told}", flush=True)
    if options.json:
        print(json.dumps({"benchmark": "task", "results": results}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
