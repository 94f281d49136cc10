"""Which columns partial images lack, by name: against the bitmaps that made them."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.protocol.constants import EventType
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.types.types import OutputColumn
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin

TABLES = Tables({"d.t": None})
NAMES = ("id", "a", "b", "c", "d", "e", "f", "g", "h", "i")
COLUMNS = [Column(name, 1) for name in NAMES]
BITS = st.lists(st.booleans(), min_size=len(NAMES), max_size=len(NAMES)).filter(any)
CHANGE = st.tuples(st.sampled_from((INSERT, UPDATE, DELETE)), BITS | st.just([True] * len(NAMES)), BITS)


def stream(changes: list[tuple[int, list[bool], list[bool]]]) -> Primary:
    made = Primary()
    made.gtid()
    for op, before, after in changes:
        made.event(EventType.TABLE_MAP, table_map(1, COLUMNS))
        images = image([b"\1"] * sum(before)) + (image([b"\2"] * sum(after)) if op == UPDATE else b"")
        made.event(op, rows(1, len(NAMES), images * 2, before=before, after=after if op == UPDATE else None))
    made.xid()
    return made


def lacking(bits: list[bool]) -> list[str] | None:
    return None if all(bits) else [name for name, there in zip(NAMES, bits, strict=True) if not there]


@settings(max_examples=60)
@given(st.lists(CHANGE, min_size=1, max_size=30), st.sampled_from(("envelope", "flat", "variant")), st.integers(2, 9))
def test_lists_are_the_bitmaps_by_name(
    changes: list[tuple[int, list[bool], list[bool]]], shape: Literal["envelope", "flat", "variant"], batch_rows: int
) -> None:
    decoded = check_twin(stream(changes).binlog(), TABLES, DecodeOptions(shape=shape, batch_rows=batch_rows))
    if shape == "flat":
        expected = [
            lacking(bits)
            for op, before, after in changes
            for _ in range(2)
            for bits in ([before, after] if op == UPDATE else [before])
        ]
        assert decoded.absent == expected
        return
    twice = [change for change in changes for _ in range(2)]
    assert decoded.absent_before == [None if op == INSERT else lacking(before) for op, before, _ in twice]
    expected = [
        lacking(before) if op == INSERT else lacking(after) if op == UPDATE else None for op, before, after in twice
    ]
    assert decoded.absent_after == expected


def test_only_columns_that_are_put_out_are_named_and_whole_images_cost_nothing() -> None:
    output = [OutputColumn("b", pa.int8(), "TINYINT"), OutputColumn("added", pa.int8(), "TINYINT")]
    whole, partial = [True] * len(NAMES), [True] + [False] * 9

    def batch(before: list[bool], after: list[bool]) -> object:
        decoder = RangeDecoder(TABLES, DecodeOptions(), output)
        (found,) = decoder.decode(bytes(stream([(UPDATE, before, after)])), checksum=True)
        return found.absent_before, found.absent_after and found.absent_after.to_pylist()

    assert batch(whole, whole) == (None, None)
    assert batch(whole, partial) == (None, [["b"], ["b"]])
    assert batch(whole, [False, *whole[1:]]) == (None, [[], []])


@pytest.mark.parametrize("width", [1, 7, 8, 9, 64, 65, 300])
def test_tables_of_any_width(width: int) -> None:
    names = [f"c{i}" for i in range(width)]
    made = Primary()
    made.gtid()
    made.event(EventType.TABLE_MAP, table_map(1, [Column(name, 1) for name in names]))
    bits = [i % 3 == 0 for i in range(width)]
    made.event(INSERT, rows(1, width, image([b"\1"] * sum(bits)), before=bits))
    made.xid()
    decoded = check_twin(made.binlog(), TABLES, DecodeOptions())
    assert decoded.absent_after == [None if all(bits) else [n for n, b in zip(names, bits, strict=True) if not b]]
