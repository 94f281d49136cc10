"""Inside a large transaction batches keep their limits, get to its end, and stop where nothing selected is left."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming_source.ranges.cutting import GroupCut

if TYPE_CHECKING:
    from replica.rows.decode.row_index import RowIndex


class _Index:
    """What `GroupCut` reads of a RowIndex: stretches of (rows, selected ones among them, bytes)."""

    def __init__(self, stretches: list[tuple[int, int, int]]) -> None:
        self.stretches = stretches
        rows, selected, size = (np.array(list(accumulate(part)), np.int64) for part in zip(*stretches, strict=True))
        self.rows, self.selected, self.offsets = rows[:-1], selected[:-1], size[:-1]
        self.total_rows, self.total_selected, self.size = (int(part[-1]) for part in (rows, selected, size))

    @property
    def cut(self) -> GroupCut:
        return GroupCut(cast("RowIndex", self))


_stretches = st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(1, 50)).map(lambda s: (s[0], min(s[:2]), s[2]))


@given(st.lists(_stretches, min_size=1, max_size=12), st.integers(1, 80), st.none() | st.integers(1, 12))
def test_pieces_go_on_to_the_end_within_the_limits(
    stretches: list[tuple[int, int, int]], max_bytes: int, max_rows: int | None
) -> None:
    index = _Index(stretches)
    borders = [0, *index.rows.tolist(), index.total_rows]
    lower, pieces = 0, 0
    while (upper := index.cut.end(lower, max_bytes=max_bytes, max_rows=max_rows)) is not None:
        assert lower < upper < index.total_rows
        if max_rows is not None:
            # The selected rows that may be in it: all of a stretch it touches that could be.
            assert _selected(stretches, lower, upper) <= max_rows
        first = max(n for n, rows in enumerate(borders) if rows <= lower)
        touched = [n for n, rows in enumerate(borders[:-1]) if n >= first and rows < upper]
        assert len(touched) == 1 or sum(stretches[n][2] for n in touched) <= max_bytes
        lower, pieces = upper, pieces + 1
    assert pieces < index.total_rows
    assert max_rows is None or _least(stretches, lower) <= max_rows


def _selected(stretches: list[tuple[int, int, int]], lower: int, upper: int) -> int:
    """How many selected rows lie in [lower, upper) at most: those of another table may stand anywhere in a stretch."""
    return _count(stretches, lower, upper, lambda inside, _, selected: min(inside, selected))


def _least(stretches: list[tuple[int, int, int]], lower: int) -> int:
    """How many lie behind `lower` at least."""
    return _count(stretches, lower, 1 << 40, lambda inside, rows, selected: max(0, selected - (rows - inside)))


def _count(stretches: list[tuple[int, int, int]], lower: int, upper: int, of: Any) -> int:
    total, begin = 0, 0
    for rows, selected, _ in stretches:
        inside = max(0, min(begin + rows, upper) - max(begin, lower))
        total += of(inside, rows, selected)
        begin += rows
    return total


def test_rows_are_counted_to_the_row_where_a_stretch_is_of_selected_tables_alone() -> None:
    cut = _Index([(10, 10, 100), (10, 0, 100), (10, 10, 100)]).cut
    assert cut.end(0, max_bytes=1 << 30, max_rows=4) == 4
    assert cut.end(4, max_bytes=1 << 30, max_rows=8) == 22
    assert cut.end(22, max_bytes=1 << 30, max_rows=8) is None
    assert [cut.selected_before(n) for n in (0, 4, 10, 15, 20, 29, 30)] == [0, 4, 10, 10, 10, 19, 20]
    assert cut.share_before(22) == 220 / 300


def test_where_nothing_selected_is_left_the_rest_is_no_piece_of_its_own() -> None:
    cut = _Index([(10, 10, 100), (10, 0, 100)]).cut
    assert cut.end(0, max_bytes=100, max_rows=None) is None
    assert cut.end(10, max_bytes=1, max_rows=1) is None
    assert _Index([(10, 0, 100)]).cut.end(0, max_bytes=1, max_rows=1) is None
