"""Earlier states of a control table: which versions are read, and the rows between two of them."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest

from streaming_source.mirroring.control.control_history import Moment, moment, rows_a_second, spaced
from tests.unit.streaming_source.mirroring.control.status_rows import NOW


@pytest.mark.parametrize("count", [0, 1, 5, 6, 11, 1000])
def test_versions_are_evenly_spaced_and_have_the_newest(count: int) -> None:
    found = spaced(range(count), 5)
    assert len(found) == min(count, 5)
    assert found == sorted(set(found))
    assert not count or found[-1] == count - 1
    if count == 1000:
        assert found == [199, 399, 599, 799, 999]


def test_a_moment_has_the_largest_lag_and_no_dropped_table() -> None:
    rows = [
        ("shop", "a", "current", 5, 1.5, NOW),
        ("shop", "b", "failed", 7, None, NOW),
        ("shop", "c", "dropped", 1, None, NOW - dt.timedelta(days=1)),
    ]
    counts = {("shop", "a"): 5, ("shop", "b"): 7, ("shop", "c"): 1}
    assert moment(rows) == Moment(NOW, 1.5, Counter(current=1, failed=1), counts)
    assert moment([]) is None


def test_rows_a_second_of_a_table_that_began_again_count_from_zero() -> None:
    before = Moment(NOW, None, Counter(), {("s", "a"): 100, ("s", "b"): 900})
    after = Moment(NOW + dt.timedelta(seconds=10), None, Counter(), {("s", "a"): 150, ("s", "b"): 50, ("s", "n"): 100})
    assert rows_a_second(before, after) == 20.0
