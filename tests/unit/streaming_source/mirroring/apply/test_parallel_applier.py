"""MERGEs into small targets are interpreted and write files anew, and what the user has set is left alone.

Shuffles are as large as the targets, and never larger than the user allows.


A target is counted when it may have passed a limit or doubled, and not before.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

from streaming_source.mirroring.apply.parallel_applier import (
    COMPILED,
    INTERPRETED,
    MARKED_ROWS,
    MOST,
    MOST_REWRITTEN_ROWS,
    MOST_ROWS,
    PARTS,
    REWRITTEN_FILES,
    MergeSettings,
    ShuffleSize,
    TargetSize,
    TargetSizes,
    shuffle_parts,
)
from streaming_source.mirroring.batch.batch_facts import TableChanges

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [
    (TargetSize(0, 0), INTERPRETED | REWRITTEN_FILES),
    (TargetSize(MOST_ROWS + 1, 0), COMPILED | MARKED_ROWS),
    (TargetSize(MOST_ROWS, 1), INTERPRETED | REWRITTEN_FILES),
    (TargetSize(100_000, 4_999), COMPILED | MARKED_ROWS),
    (TargetSize(100_000, 5_000), COMPILED | REWRITTEN_FILES),
    (TargetSize(MOST_REWRITTEN_ROWS, MOST_REWRITTEN_ROWS), COMPILED | REWRITTEN_FILES),
    (TargetSize(MOST_REWRITTEN_ROWS + 1, MOST_REWRITTEN_ROWS), COMPILED | MARKED_ROWS),
    (TargetSize(10**9, 10**9), COMPILED | MARKED_ROWS),
]


class Session:
    """A session's settings."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self

    def get(self, name: str, *default: str | None) -> str | None:
        return self.settings.get(name, *default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


def test_each_target_gets_the_settings_of_its_size_whatever_came_before() -> None:
    session, settings = Session(other="1"), MergeSettings()
    for size, expected in (*SIZES, *reversed(SIZES)):
        settings.fit(session, size)  # type: ignore[arg-type]
        assert session.settings == {"other": "1", **expected}, size


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        *((name, value, REWRITTEN_FILES) for name in INTERPRETED for value in ("true", "FALLBACK")),
        *((name, value, INTERPRETED) for name in REWRITTEN_FILES for value in ("true", "false")),
    ],
)
def test_what_the_user_has_set_stays(name: str, value: str, others: dict[str, str]) -> None:
    session, settings = Session(**{name: value}), MergeSettings()
    for _ in range(2):
        for size, _ in SIZES:
            settings.fit(session, size)  # type: ignore[arg-type]
            assert session.settings.keys() == {name, *others}
            assert session.settings[name] == value


@pytest.mark.parametrize(
    ("rows", "cores", "most", "parts"),
    [
        (0, 2, 200, 2),
        (1_000_000, 2, 200, 2),
        (1_000_001, 2, 200, 3),
        (10_000_000, 2, 200, 20),
        (10**9, 2, 200, 200),
        (10**9, 2, 8, 8),
        (0, 16, 4, 4),
        (0, 0, 200, 1),
    ],
)
def test_parts_grow_with_the_target_between_the_cores_and_what_is_set(
    rows: int, cores: int, most: int, parts: int
) -> None:
    assert shuffle_parts(rows, cores, most) == parts


class CoreSession:
    """A session's settings, and its cores."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self.sparkContext = self
        self.defaultParallelism = 2

    def get(self, name: str, *default: str | None) -> str | None:
        return self.settings.get(name, *default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


@pytest.mark.parametrize(("given", "most"), [({}, 40), ({PARTS: "9"}, 9)])
def test_what_the_user_has_set_stays_the_limit_in_later_batches(given: dict[str, str], most: int) -> None:
    session, size = CoreSession(**{MOST: "40", **given}), ShuffleSize()
    size.fit(session, 1)  # type: ignore[arg-type]
    assert session.settings[PARTS] == "2"
    size.fit(session, 10**9)  # type: ignore[arg-type]
    assert session.settings[PARTS] == str(most)
    assert session.settings[MOST] == "40"


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
