"""The rate that a reading tells: of the last half a minute, by a clock of the test's own."""

from __future__ import annotations

from replica.snapshot.snapshot import RATE_S, ProgressMeter


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    now = 100.0
    meter = ProgressMeter(lambda: now)
    assert meter.rate(500) == 0.0  # one question measures nothing
    now = 110.0
    assert meter.rate(1500) == 100.0
    now = 110.0 + RATE_S
    assert meter.rate(1500 + 30 * 7) == 7.0  # the question at 100 is out of reach
    now = 111.0 + 2 * RATE_S
    assert meter.rate(9999) == 0.0  # all others are
