"""The texts equal their format strings, and `_sequence` sorts like (sequence number, ordinal)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError
from streaming_source.rows.change_rows import MAX_ORDINAL, Labels, RowMemory, gtid_texts, sequence_texts

if TYPE_CHECKING:
    from streaming_source.rows.change_rows import GroupIndex, Ints

_u32, _u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
Case = tuple[list[tuple[int, int, int]], list[tuple[int, int]]]


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    """Transactions (domain, server, sequence number) and rows (transaction, ordinal), in runs."""
    groups = draw(st.lists(st.tuples(_u32, _u32, _u64), min_size=1, max_size=6))
    if draw(st.booleans()):  # as a server numbers them
        domain, server, number = groups[0]
        groups = [(domain, server, (number + i) % 2**64) for i in range(draw(st.integers(1, 30)))]
    index = st.integers(0, len(groups) - 1)
    runs = draw(st.lists(st.tuples(index, st.integers(1, 4)), max_size=12))
    if draw(st.booleans()):
        runs = [(group, 2) for group in range(len(groups))]
    first = draw(st.none() | st.integers(0, MAX_ORDINAL - 4))
    ordinals = st.integers(0, MAX_ORDINAL)
    rows = [(group, draw(ordinals) if first is None else first + i) for group, length in runs for i in range(length)]
    return groups, rows


@settings(max_examples=100)
@given(_cases())
def test_texts_are_their_formats_and_sequences_sort_like_the_numbers(case: Case) -> None:
    groups, rows = case
    domain, server, seq_no = (np.array(column, np.uint64).view(np.int64) for column in zip(*groups, strict=True))
    group = np.array([g for g, _ in rows], np.int32)
    ordinal = np.array([o for _, o in rows], np.int64)

    memory = RowMemory()
    sequences = sequence_texts(seq_no, group, ordinal, memory).to_pylist()
    assert sequences == [f"{groups[g][2]:020d}.{o:012d}" for g, o in rows]
    by_number = sorted(range(len(rows)), key=lambda i: (groups[rows[i][0]][2], rows[i][1]))
    assert [sequences[i] for i in by_number] == sorted(sequences)

    gtids = gtid_texts(domain, server, seq_no, group, memory)
    gtids.validate(full=True)
    assert gtids.to_pylist() == ["-".join(map(str, groups[g])) for g, _ in rows]


def test_an_ordinal_too_large_to_sort_is_refused() -> None:
    with pytest.raises(ProtocolError, match="cannot be numbered"):
        sequence_texts(*_one(MAX_ORDINAL + 1), RowMemory())


def _one(ordinal: int) -> tuple[Ints, GroupIndex, Ints]:
    return np.array([1], np.int64), np.array([0], np.int32), np.array([ordinal], np.int64)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=5), st.lists(st.integers(0, 100), max_size=50))
def test_each_row_has_its_word(words: list[str], rows: list[int]) -> None:
    codes = np.array(rows, np.int8) % len(words)

    texts = Labels(words).texts(codes, RowMemory())

    texts.validate(full=True)
    assert texts.to_pylist() == [words[code] for code in codes.tolist()]


def test_a_word_of_more_than_16_bytes_is_refused() -> None:
    assert Labels(["x" * 16]).texts(np.zeros(2, np.int8), RowMemory()).to_pylist() == ["x" * 16] * 2
    with pytest.raises(ValueError, match="xxx"):
        Labels(["x" * 17])
