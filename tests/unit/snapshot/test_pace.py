"""The rate of rows, by a clock of the test's own."""

from __future__ import annotations

from replica.snapshot.pace import BURST_S, RowRate


def test_without_a_rate_nothing_waits() -> None:
    rate = RowRate(None)
    rate.took(10**9)
    assert rate.wait_s() == 0


def test_rows_are_paid_for_in_time_and_an_idle_time_is_not_saved_up() -> None:
    now = [100.0]
    rate = RowRate(1_000, clock=lambda: now[0])
    assert rate.wait_s() == 0
    rate.took(500)
    assert rate.wait_s() == 0.5
    rate.took(1_000)
    assert rate.wait_s() == 1.5
    now[0] += 2
    assert rate.wait_s() == 0
    now[0] += 1_000
    rate.took(3_000)
    assert rate.wait_s() == 3 - BURST_S
