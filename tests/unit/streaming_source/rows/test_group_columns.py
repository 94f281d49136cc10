"""Rows take what numpy's indexing gives them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_source.rows.group_columns import take, take_positions

_i64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60)
@given(
    st.lists(_i64 | st.just(0), min_size=1, max_size=8),
    st.lists(st.integers(0, 7), max_size=40),
    st.integers(1, 5),
    st.sampled_from([1, 1_000_000]),
)
def test_rows_take_the_values_of_their_groups(values: list[int], rows: list[int], step: int, factor: int) -> None:
    records = np.zeros((len(values), step), np.int64)
    records[:, step - 1] = values  # a column of records, as the scan's are
    group = np.array(rows, np.int32) % len(values)

    taken, told = take(records[:, step - 1], group, factor)

    assert taken.tolist() == (records[group, step - 1] * np.int64(factor)).tolist()
    assert told == np.count_nonzero(records[group, step - 1])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=6), st.data())
def test_positions_are_log_pos_less_the_length_modulo_4_gib(
    headers: list[tuple[int, int]], data: st.DataObject
) -> None:
    events = [b"t" * 9 + length.to_bytes(4, "little") + end.to_bytes(4, "little") + b"ff" for length, end in headers]
    group = np.array(data.draw(st.lists(st.integers(0, len(headers) - 1), max_size=20)), np.int32)
    starts = np.arange(len(headers), dtype=np.int64) * len(events[0])

    found = take_positions(np.frombuffer(b"".join(events), np.uint8), starts, group)

    assert found.tolist() == [(headers[g][1] - headers[g][0]) % 2**32 for g in group.tolist()]


def test_a_column_that_is_not_contiguous_may_be_the_index() -> None:
    rows = np.array([[0, 9], [1, 9], [0, 9]], np.int32)[:, 0]
    assert take(np.array([7, 0], np.int64), rows)[0].tolist() == [7, 0, 7]
    assert take(np.array([7, 0], np.int64), rows)[1] == 2
