"""Rows take what numpy's indexing gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.rows.decode.batch import Groups
from replica.rows.scan.records import GroupRecord
from streaming_source.rows.change_rows import NUMBERS, RowMemory, numbers

if TYPE_CHECKING:
    from streaming_source.rows.change_rows import Bytes

_i64, _u32 = st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1)
_FIELDS = ("domain", "server", "sequence", "timestamp", "xid", "thread")
_HEADER_BYTES = 19


def _groups(values: list[tuple[int, ...]]) -> Groups:
    records = np.zeros(len(values), GroupRecord.dtype)
    for name, column in zip(_FIELDS, zip(*values, strict=True), strict=True):
        records[name] = column
    records["start"] = np.arange(len(values)) * _HEADER_BYTES
    return Groups(records)


def _range(headers: list[tuple[int, int]]) -> Bytes:
    events = [b"t" * 9 + length.to_bytes(4, "little") + end.to_bytes(4, "little") + b"ff" for length, end in headers]
    return np.frombuffer(b"".join(events), np.uint8)


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.tuples(_i64, _i64, _i64, _u32, _i64 | st.just(0), _u32 | st.just(0)), _u32, _u32), min_size=1
    ),
    st.lists(st.integers(0, 10_000), max_size=60),
    st.sets(st.sampled_from(NUMBERS)),
)
def test_rows_take_the_numbers_of_their_groups(
    made: list[tuple[tuple[int, ...], int, int]], rows: list[int], wanted: set[str]
) -> None:
    groups, data = _groups([one[0] for one in made]), _range([(length, end) for _, length, end in made])
    group = np.array(rows, np.int32) % len(made)
    memory = RowMemory()
    memory.bytes("domain", 1000)[:] = 0xAA  # what an earlier batch has left there

    columns, told = numbers(groups, group, data, wanted, memory)

    assert columns.keys() == wanted
    expected = {name: groups.records[name][group] for name in _FIELDS}
    expected["timestamp"] = expected["timestamp"] * 1_000_000
    expected["position"] = np.array([(made[g][2] - made[g][1]) % 2**32 for g in group.tolist()], np.int64)
    for name, column in columns.items():
        assert column.tolist() == expected[name].tolist(), name
    assert told == {name: np.count_nonzero(expected[name]) for name in ("xid", "thread")}


def test_a_column_that_is_not_contiguous_may_be_the_index() -> None:
    groups = _groups([(0, 0, 0, 0, 7, 0), (0, 0, 0, 0, 0, 0)])
    rows = np.array([[0, 9], [1, 9], [0, 9]], np.int32)[:, 0]

    found = numbers(groups, rows, _range([(0, 0)] * 2), {"xid"}, RowMemory())

    assert found.columns["xid"].tolist() == [7, 0, 7]
    assert found.present["xid"] == 2
