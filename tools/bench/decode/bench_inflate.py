"""Compressed rows events of a real server, inflated by each library: `scripts/bench inflate [--mb N] [--json]`.

A private server writes rows with a text of about 300 bytes, 8 KB and 1 MB, and events of 8 KB full of rows of mixed
types (workload bulk), with log_bin_compress=ON; every library inflates the same blocks, on one core, in one run, the
best of five passes. `ours` is replica.protocol.compression, header checks included. After that, bulk decoded to Arrow
from a plain and from a compressed binlog.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import deflate
from isal import isal_zlib
from zlib_ng import zlib_ng

from replica.protocol.compression import inflate
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.rows.rows_event import RowsEvent
from tests.fixtures.mariadb import MariaDb
from tools.bench.decode.bench_decode import run_decoder
from tools.bench.kit.workloads import COMPRESS, DATABASE, OPTIONS, binlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Bytes of a row's text, and rows: enough blocks that a pass takes tens of milliseconds.
SIZES: Final = {"300 B": (230, 20_000), "8 KB": (8_100, 2_000), "1 MB": (1 << 20, 16)}
MOST_BLOCKS: Final = 4000
PASSES: Final = 5

LIBRARIES: Final[dict[str, Callable[[memoryview, int], Any]]] = {
    "zlib": lambda stream, size: zlib.decompressobj().decompress(stream, size + 1),
    "isal": lambda stream, size: isal_zlib.decompressobj().decompress(stream, size + 1),
    "zlib-ng": lambda stream, size: zlib_ng.decompressobj().decompress(stream, size + 1),
    "deflate": deflate.zlib_decompress,
}


def blocks(server: MariaDb, text: int, rows: int) -> list[memoryview]:
    """The compressed images of single-row inserts: half of each text is hexadecimal noise, half repeats."""
    server.sql(f"CREATE OR REPLACE TABLE {DATABASE}.t (id INT PRIMARY KEY, a BIGINT, b DOUBLE, c LONGTEXT)")
    noise = f"(SELECT GROUP_CONCAT(MD5(seq * 7 + {{i}}) SEPARATOR '') FROM seq_1_to_{text // 64 + 1})"
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {DATABASE}")
        cursor.execute("SET group_concat_max_len = 16777216")
        cursor.execute("FLUSH BINARY LOGS")
        for i in range(rows):
            value = f"CONCAT({noise.format(i=i)}, REPEAT('a usual word ', {text // 26}))"
            cursor.execute(f"INSERT INTO {DATABASE}.t VALUES ({i}, {i} * 1000003, {i} / 3, {value})")
    return compressed_images((server.datadir / server.binlogs()[-1]).read_bytes())


def compressed_images(data: bytes) -> list[memoryview]:
    return [event.images for _, event in decode_file(data) if isinstance(event, RowsEvent) and event.compressed]


def best(function: Callable[[], None]) -> float:
    """CPU seconds of the quickest pass."""
    times = []
    for _ in range(PASSES):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def compare(found: list[memoryview]) -> dict[str, Any]:
    streams = []
    for block in found:
        start = 1 + (block[0] & 7)
        streams.append((block[start:], int.from_bytes(block[1:start], "big")))
    total = sum(size for _, size in streams)
    result: dict[str, Any] = {"blocks": len(found), "bytes": total, "compressed": sum(map(len, found)), "mb_per_s": {}}
    for name, library in LIBRARIES.items():
        for stream, size in streams[:10]:
            assert len(library(stream, size)) == size
        seconds = best(lambda library=library: [library(stream, size) for stream, size in streams])  # type: ignore[misc]
        result["mb_per_s"][name] = total / seconds / 1e6
    result["mb_per_s"]["ours"] = total / best(lambda: [inflate(block) for block in found]) / 1e6  # type: ignore[arg-type]
    return result


def show(name: str, one: dict[str, Any]) -> dict[str, Any]:
    rates = "".join(f"{rate:12,.0f}" for rate in one["mb_per_s"].values())
    print(f"{name:8}{one['blocks']:8}{one['bytes'] / one['compressed']:7.1f}{rates}")
    return one


def decoding(megabytes: int, version: str | None) -> dict[str, Any]:
    """The kernels over both files; they do not hold the same number of rows, so rates are by row."""
    result = {}
    for name, compressed in (("plain", False), ("compressed", True)):
        path = binlog("bulk", megabytes, version=version, compressed=compressed)
        one = run_decoder("kernels", path=str(path), shape="envelope")
        result[name] = {
            "rows_per_cpu_second": one["rows"] / one["cpu"],
            "mb_per_cpu_second": one["bytes"] / one["cpu"] / 1e6,
            "bytes_per_row": one["bytes"] / one["rows"],
        }
    return result


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench inflate", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mb", type=int, default=50, help="size of the binlogs that are decoded (default 50)")
    parser.add_argument("--version", help="the MariaDB that writes the binlogs, such as 10.11")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args(argv)
    result: dict[str, Any] = {"blocks": {}}
    print(f"{'':8}{'blocks':>8}{'ratio':>7}" + "".join(f"{name:>12}" for name in (*LIBRARIES, "ours")) + "   MB/s")
    with MariaDb(options.version, *OPTIONS, *COMPRESS, "--max-allowed-packet=64M") as server:
        server.sql(f"CREATE DATABASE {DATABASE}")
        for name, (text, count) in SIZES.items():
            result["blocks"][name] = show(name, compare(blocks(server, text, count)))
    rows = compressed_images(binlog("bulk", options.mb, version=options.version, compressed=True).read_bytes())
    result["blocks"]["rows"] = show("rows", compare(rows[:MOST_BLOCKS]))
    result["decode"] = decoding(options.mb, options.version)
    for name, one in result["decode"].items():
        print(
            f"decode {name:11}{one['rows_per_cpu_second']:12,.0f} rows/CPU s{one['mb_per_cpu_second']:9,.0f} MB/CPU s "
            f"of file, {one['bytes_per_row']:.0f} bytes a row"
        )
    if options.json:
        print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
