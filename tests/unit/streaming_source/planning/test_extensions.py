from __future__ import annotations

from streaming_source.planning.planner import MOST, Extensions

A, B = ("d", "a"), ("d", "b")


def test_a_run_goes_on_for_each_table_a_few_times() -> None:
    run = Extensions()
    assert [run.allow([A], [A]) for _ in range(MOST + 1)] == [True] * MOST + [False]
    assert run.allow([A, B], [A, B]), "not yet for the other one"


def test_a_run_goes_on_while_other_tables_are_read() -> None:
    run = Extensions()
    assert all(run.allow([A], [A, B]) for _ in range(2 * MOST))
    assert not run.allow([A], [A])
