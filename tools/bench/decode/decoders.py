"""Decoders that bench_decode compares, each as a program: `python -m tools.bench.decode.decoders NAME JSON`.

A fresh process a decoder gives clean CPU figures: user and system time of the decoding alone, without imports or
compiling. Each prints one JSON object: rows, bytes, wall and cpu in seconds. Bytes are bytes of binlog.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replica.native.arrays import address
from replica.native.compile import kernel
from replica.native.crc32 import crc32
from replica.native.memory import load_u4
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.rows.rows_event import RowsEvent
from replica.protocol.rows.table_map import TableMapEvent, parse_table_map
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, TableTarget
from replica.rows.scan.scan import scan
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from tests.kit.oracle import rows as reference

if TYPE_CHECKING:
    from collections.abc import Callable

# What a Spark task reads at a time.
RANGE_BYTES = 16 << 20
MAGIC_BYTES = 4
# One pass over 300 MB takes a fraction of a second, in which a busy machine disturbs much: the median of these counts.
PASSES = 5


class Everything:
    """A resolver that wants every table and takes its columns from the stream."""

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        return TableTarget() if table_map.database == "bench" else None


class Stopwatch:
    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *exc: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu


@kernel
def count_bad_checksums(data: int, size: int) -> int:
    """How many events of a range do not match their CRC32 trailer."""
    position = 0
    bad = 0
    while position < size:
        length = load_u4(data + position + 9)
        bad += crc32(data + position, length - 4, 0) != load_u4(data + position + length - 4)
        position += length
    return bad


def ranges(path: Path) -> list[tuple[int, int]]:
    """The file cut at group ends, as a relay log's index cuts it for tasks: (start, end) offsets."""
    found = scan(np.fromfile(path, np.uint8), checksum=True)
    ends = [int(end) for end in found.groups["end"]]
    cuts, start = [], MAGIC_BYTES
    for i, end in enumerate(ends):
        if i + 1 == len(ends) or ends[i + 1] - start > RANGE_BYTES:
            cuts.append((start, end))
            start = end
    return cuts


def kernels(path: Path, shape: str, **_: Any) -> dict[str, Any]:
    """Ours: read a range of the file, scan it, decode all rows into Arrow; CRC32 verification in a pass of its own."""
    first = Stopwatch()
    cuts = ranges(path)
    buffer = np.empty(max(end - start for start, end in cuts), np.uint8)
    output = None

    def read(start: int, end: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        file.seek(start)
        view = buffer[: end - start]
        if file.readinto(memoryview(view)) != end - start:
            raise EOFError(path)
        return view

    with path.open("rb", buffering=0) as file:
        if shape != "variant":
            table_map = parse_table_map(scan(read(*cuts[0]), checksum=True).table_map_body(0))
            output = compile_layout(table_map, None, None, ValuePolicy()).outputs

        options = DecodeOptions(shape=shape, reuse_buffers=True)  # type: ignore[arg-type]

        def run(part: list[tuple[int, int]]) -> int:
            rows = 0
            for cut in part:
                decoder = RangeDecoder(Everything(), options, output)  # one a range, as in a Spark task
                rows += sum(batch.rows for batch in decoder.decode(read(*cut), checksum=True))
            return rows

        with first:
            run(cuts[:1])
        passes = []
        for _ in range(PASSES):
            with Stopwatch() as watch:
                rows = run(cuts)
            passes.append((watch.cpu, watch.wall))
        cpu, wall = sorted(passes)[PASSES // 2]
        count_bad_checksums(address(buffer), 0)
        with Stopwatch() as verification:
            bad = sum(count_bad_checksums(address(read(*cut)), cut[1] - cut[0]) for cut in cuts)
        if bad:
            raise ValueError(f"{bad} events do not match their CRC32")
    size = sum(end - start for start, end in cuts)
    return {
        "rows": rows,
        "bytes": size,
        "wall": wall,
        "cpu": cpu,
        "cpu_of_passes": [cpu for cpu, _ in passes],
        "crc_cpu": verification.cpu,
        "first_range_cpu": first.cpu,
    }


def twin(path: Path, seconds: float, **_: Any) -> dict[str, Any]:
    """The reference decoder, for as many rows as it does in the time given."""
    data = path.read_bytes()
    rows = offset = 0
    maps: dict[int, TableMapEvent] = {}
    layouts: dict[bytes, Any] = {}
    with Stopwatch() as watch:
        deadline = time.perf_counter() + seconds
        for found, event in decode_file(data):
            if isinstance(event, TableMapEvent):
                maps[event.table_id] = event
            elif isinstance(event, RowsEvent):
                table_map = maps[event.table_id]
                if table_map.content not in layouts:
                    layouts[table_map.content] = compile_layout(table_map, None, None, ValuePolicy())
                rows += sum(1 for _ in reference.read_rows(event, layouts[table_map.content]))
                offset = found.offset
                if time.perf_counter() > deadline:
                    break
    return {"rows": rows, "bytes": offset, "wall": watch.wall, "cpu": watch.cpu}


DECODERS: dict[str, Callable[..., dict[str, Any]]] = {
    "kernels": kernels,
    "twin": twin,
}

if __name__ == "__main__":
    arguments = json.loads(sys.argv[2])
    if "path" in arguments:
        arguments["path"] = Path(arguments["path"])
    print(json.dumps(DECODERS[sys.argv[1]](**arguments)))
