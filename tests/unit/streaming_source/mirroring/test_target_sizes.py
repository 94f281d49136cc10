"""A target is counted when it may have passed a limit or doubled, and not before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from streaming_source.mirroring.batch_facts import TableChanges
from streaming_source.mirroring.merge_settings import MOST_ROWS, TargetSize
from streaming_source.mirroring.target_sizes import TargetSizes

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def counts() -> list[int]:
    """What was counted, in order."""
    return []


@pytest.fixture
def work(counts: list[int]) -> Callable[..., Any]:
    def made(applied: int, *, there: int | Exception | None, statements: int = 0, **facts: int) -> Any:
        def count() -> int | None:
            counts.append(applied)
            if isinstance(there, Exception):
                raise there
            return there

        row = SimpleNamespace(name=("shop", "orders"), rows=applied)
        return SimpleNamespace(row=row, facts=TableChanges(**facts), statements=[None] * statements, count=count)

    return made


def test_changes_without_end_leave_a_small_target_small(work: Callable[..., Any], counts: list[int]) -> None:
    sizes, applied = TargetSizes(), 1_000
    for _ in range(1_000):
        assert sizes.of(work(applied, there=1_000, changes=200)).rows <= MOST_ROWS + 200
        applied += 200
    assert counts == [50_200, 99_400, 148_600, 197_800]
    assert sizes.of(work(10**9, there=1_000, changes=5)) == TargetSize(1_005, 5)


def test_a_target_that_grows_is_counted_each_time_it_has_doubled(work: Callable[..., Any], counts: list[int]) -> None:
    sizes = TargetSizes()
    for applied in range(0, 10_000_000, 10_000):
        assert sizes.of(work(applied, there=applied, reads=10_000)) == TargetSize(applied + 10_000, 0)
    assert counts == [60_000, 130_000, 270_000, 550_000, 1_110_000, 2_230_000, 4_470_000, 8_950_000]


def test_a_target_that_is_made_anew_begins_with_nothing(work: Callable[..., Any], counts: list[int]) -> None:
    sizes = TargetSizes()
    assert sizes.of(work(10**6, there=10**6)).rows == 10**6
    assert sizes.of(work(0, there=0, reads=7)).rows == 7
    assert counts == [10**6]


@pytest.mark.parametrize("there", [None, AnalysisException("the target is gone")])
def test_what_cannot_be_counted_has_as_many_as_it_may_have(work: Callable[..., Any], there: Exception | None) -> None:
    assert TargetSizes().of(work(70_000, there=there, changes=10)) == TargetSize(70_010, 10)


def test_statements_divide_the_changes(work: Callable[..., Any]) -> None:
    assert TargetSizes().of(work(10, there=10, changes=100, statements=3)) == TargetSize(110, 25)
