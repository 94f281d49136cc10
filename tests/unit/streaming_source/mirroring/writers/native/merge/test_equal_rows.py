"""Rows are found that equal others bit by bit, as a dictionary of their bits finds them."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.merge.equal_rows import EqualRows, flags, row_codes

NAN = float("nan")
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))[0]
FLOATS = (None, 0.0, -0.0, NAN, OTHER_NAN, 1.5)
KINDS: dict[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    "n": (pa.int32(), (None, 0, 1)),
    "f": (pa.float32(), FLOATS),
    "d": (pa.float64(), FLOATS),
    "t": (pa.string(), (None, "", "a", "A", "a ")),
    "b": (pa.binary(), (None, b"", b"\0")),
    "m": (pa.decimal128(20, 0), (None, Decimal(0), Decimal(2**64 - 1))),
    "y": (pa.bool_(), (None, True, False)),
    "v": (pa.list_(pa.float32()), (None, [], [0.0], [-0.0], [NAN, 1.0])),
}
ROWS = st.lists(st.tuples(*(st.sampled_from(values) for _, values in KINDS.values())), max_size=12)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(len(KINDS))]
    return pa.table(
        [pa.array(column, kind) for column, (kind, _) in zip(columns, KINDS.values(), strict=True)], [*KINDS]
    )


def bits(row: tuple[Any, ...]) -> str:
    """What tells a row from others; `repr` tells 0.0 from -0.0, and all NaNs are one."""
    return repr(row)


@given(wanted=ROWS, rows=ROWS, more=st.integers(0, 5), cut=st.integers(0, 3))
def test_rows_are_found_that_have_the_same_bits(
    wanted: list[tuple[Any, ...]], rows: list[tuple[Any, ...]], more: int, cut: int
) -> None:
    rows = [*rows, *wanted[:more]]
    batch = pa.RecordBatch.from_arrays([column.combine_chunks() for column in table(rows).columns], [*KINDS])
    places, which = EqualRows(table(wanted)).places(batch.slice(cut))
    known = {bits(row) for row in wanted}
    assert places.tolist() == [place for place, row in enumerate(rows[cut:]) if bits(row) in known]
    assert [bits(wanted[number]) for number in which] == [bits(rows[cut:][place]) for place in places]


@given(rows=ROWS)
def test_codes_are_the_same_for_equal_rows(rows: list[tuple[Any, ...]]) -> None:
    codes = row_codes(table(rows)).tolist()
    assert len(set(codes)) == len(set(map(bits, rows)))
    assert len(set(zip(codes, map(bits, rows), strict=True))) == len(set(codes))


def test_types_whose_values_are_not_compared_are_refused() -> None:
    for kind, value in ((pa.struct({"a": pa.int32()}), {"a": 1}), (pa.list_(pa.int32()), [1])):
        with pytest.raises(NativeWriteError, match="cannot be compared"):
            row_codes(pa.table({"s": pa.array([value], kind)}))
    with pytest.raises(NativeWriteError, match="VECTOR that lacks some"):
        row_codes(pa.table({"v": pa.array([[None]], pa.list_(pa.float32()))}))


def test_flags_are_read_at_their_place() -> None:
    values = pa.array([True, False, True, True])
    assert flags(values.slice(1)).tolist() == [False, True, True]
    assert flags(values.slice(4)).dtype == np.bool_
