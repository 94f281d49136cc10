"""What rows of tables that are not selected cost: decoding a range of which a part is wanted, against all of it.

Transactions of one updated row of 190 bytes, as sysbench makes them. `apart`: other tables' rows in transactions of
their own, which are passed over; `mixed`: in the same transactions, where ordinals want them counted. Nanoseconds are
per rows event that is not wanted, beyond what decoding the wanted ones costs alone.
"""

from __future__ import annotations

import argparse
import json
import struct
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from replica.protocol.constants import EventType
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.types.types import OutputColumn
from streaming_source.selection.resolver import SelectedTables
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import UPDATE, Column, image, rows, table_map

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = [Column("id", 3), Column("k", 3), Column("c", 254, b"\xfe\x78"), Column("pad", 254, b"\xfe\x3c")]
OUTPUT = [
    OutputColumn("id", pa.int32(), "INT"),
    OutputColumn("k", pa.int32(), "INT"),
    OutputColumn("c", pa.string(), "STRING"),
    OutputColumn("pad", pa.string(), "STRING"),
]
ROW = image([struct.pack("<i", 7), struct.pack("<i", 8), b"\x78" + b"c" * 120, b"\x3c" + b"p" * 60])
WANTED_SHARE = 20
"""One transaction in so many holds a wanted row: 95 % of the rows are others'."""


def transaction(*tables: str) -> bytes:
    stream = Primary()
    stream.gtid()
    for table in tables:
        stream.event(EventType.TABLE_MAP, table_map(1 + "tu".index(table), COLUMNS, table=table))
        stream.event(UPDATE, rows(1 + "tu".index(table), 4, ROW + ROW, after=[True] * 4))
    stream.xid()
    return bytes(stream)


def seconds(data: bytes, tables: SelectedTables, columns: int = len(OUTPUT)) -> tuple[float, int]:
    """Processor seconds, the best of nine, and the rows."""
    decoder = RangeDecoder(tables, DecodeOptions(reuse_buffers=True), OUTPUT[:columns])
    best, found = float("inf"), 0
    for _ in range(9):
        begin = time.process_time()
        found = sum(batch.rows for batch in decoder.decode(data, checksum=True))
        best = min(best, time.process_time() - begin)
    return best, found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=64, help="size of each range")
    parser.add_argument("--json", action="store_true", help="one JSON object as last line")
    given = parser.parse_args(arguments)
    t, figures = SelectedTables(("d.t",), {}), []
    print(f"{'log':8} {'selected':24} {'rows':>9} {'MB/s':>8} {'M events/s':>11} {'ns an unwanted event':>21}")
    for name, unit in (
        ("apart", transaction("t") + transaction("u") * (WANTED_SHARE - 1)),
        ("mixed", transaction(*"u" * (WANTED_SHARE - 1), "t")),
    ):
        count = (given.mb << 20) // len(unit)
        data, events = unit * count, count * WANTED_SHARE
        base, _ = seconds(transaction("t") * count, t)
        for title, tables, columns, unwanted in (
            ("all", SelectedTables(("d.*",), {}), 4, 0),
            ("1 table of 2", t, 4, events - count),
            ("1 table of 2, columns=id", t, 1, events - count),
            ("1 of 2, no such operation", replace(t, operations=("insert",)), 4, events),
            ("1 of 2, none changed", replace(t, skip_unchanged=True), 4, events),
            ("no table", SelectedTables(("d.x",), {}), 4, events),
        ):
            taken, found = seconds(data, tables, columns)
            each = (taken - (base if unwanted < events else 0)) / unwanted * 1e9 if unwanted else None
            row = {"log": name, "selected": title, "rows": found, "mb_per_s": len(data) / taken / 1e6}
            row |= {"events_per_s": events / taken, "ns_per_unwanted_event": each}
            figures.append(row)
            shown = "" if each is None else f"{each:.0f}"
            print(
                f"{name:8} {title:24} {found:9} {row['mb_per_s']:8.0f} {events / taken / 1e6:11.2f} {shown:>21}",
                flush=True,
            )
    if given.json:
        print(json.dumps(figures))
