"""The texts equal their format strings, and `_sequence` sorts like (sequence number, ordinal)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError
from streaming_source.rows.row_texts import MAX_ORDINAL, gtid_texts, sequence_texts

_u32, _u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
Case = tuple[list[tuple[int, int, int]], list[tuple[int, int]]]


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    """Transactions (domain, server, sequence number) and rows (transaction, ordinal), in runs."""
    groups = draw(st.lists(st.tuples(_u32, _u32, _u64), min_size=1, max_size=6))
    index = st.integers(0, len(groups) - 1)
    runs = draw(st.lists(st.tuples(index, st.integers(1, 4)), max_size=12))
    rows = [(group, draw(st.integers(0, MAX_ORDINAL))) for group, length in runs for _ in range(length)]
    return groups, rows


@settings(max_examples=100)
@given(_cases())
def test_texts_are_their_formats_and_sequences_sort_like_the_numbers(case: Case) -> None:
    groups, rows = case
    domain, server, seq_no = (np.array(column, np.uint64).view(np.int64) for column in zip(*groups, strict=True))
    group = np.array([g for g, _ in rows], np.int32)
    ordinal = np.array([o for _, o in rows], np.int64)

    sequences = sequence_texts(seq_no, group, ordinal).to_pylist()
    assert sequences == [f"{groups[g][2]:020d}.{o:012d}" for g, o in rows]
    by_number = sorted(range(len(rows)), key=lambda i: (groups[rows[i][0]][2], rows[i][1]))
    assert [sequences[i] for i in by_number] == sorted(sequences)

    gtids = gtid_texts(domain, server, seq_no, group)
    gtids.validate(full=True)
    assert gtids.to_pylist() == ["-".join(map(str, groups[g])) for g, _ in rows]


def test_an_ordinal_too_large_to_sort_is_refused() -> None:
    with pytest.raises(ProtocolError, match="cannot be numbered"):
        sequence_texts(np.array([1], np.int64), np.array([0], np.int32), np.array([MAX_ORDINAL + 1], np.int64))
