"""Work that is done for several items at a time: its order, its limit, its first error."""

from __future__ import annotations

import threading
import time

import pytest

from streaming_source.sinks.queries import side_by_side


@pytest.fixture(autouse=True)
def plain_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is at hand: its properties are Spark's own work."""
    monkeypatch.setattr("pyspark.inheritable_thread_target", lambda _: lambda work: work)


def test_results_come_in_the_order_of_the_items_and_not_more_run_than_may() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02 * (6 - item))
        with lock:
            running -= 1
        return item * 10

    assert side_by_side(None, work, range(6), at_once=3, name="test") == [0, 10, 20, 30, 40, 50]  # type: ignore[arg-type]
    assert most == 3


def test_after_the_first_error_no_more_is_begun() -> None:
    begun: list[int] = []

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            raise ValueError("the second")
        time.sleep(0.05)

    with pytest.raises(ValueError, match="the second"):
        side_by_side(None, work, range(40), at_once=2, name="test")  # type: ignore[arg-type]
    assert 2 <= len(begun) < 10
