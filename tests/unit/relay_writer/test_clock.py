from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.relay_writer.retention import CLOCK_NAME, MAX_STEP_S, SteppedClock

if TYPE_CHECKING:
    from pathlib import Path

WALL = 1_700_000_000.0


def test_time_that_passes_is_no_step(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    for second in range(0, 100_000, 5000):
        clock.tick(WALL + second, second)
    assert not clock.stepped_within(1e15)
    assert clock.last_step == ""


def test_small_steps_and_steps_back_are_taken_as_they_are(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    for second, wall in enumerate([WALL, WALL + MAX_STEP_S, WALL - 1e8, WALL - 1e8 + 60, 0.0]):
        clock.tick(wall, float(second))
    assert not clock.stepped_within(1e15)


def test_a_step_ahead_is_remembered_for_as_long_as_it_ran(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path)
    clock.tick(WALL, 0.0)
    clock.tick(WALL + 1e7, 1.0)
    assert clock.stepped_within(0.5)
    assert "ahead by 9999999 s" in clock.last_step
    clock.tick(WALL + 1e7 + 99, 100.0)
    assert not clock.stepped_within(99.0)
    assert clock.stepped_within(99.1)


def test_the_next_process_knows_of_it_and_compares_with_the_last_record(tmp_path: Path) -> None:
    first = SteppedClock(tmp_path)
    first.tick(WALL, 5000.0)
    first.tick(WALL + 100, 5100.0)
    second = SteppedClock(tmp_path)
    second.tick(WALL + 100 + 2 * MAX_STEP_S, 3.0)  # its monotonic clock began anew
    assert second.stepped_within(1.0)
    second.tick(WALL + 150 + 2 * MAX_STEP_S, 53.0)
    second.tick(WALL + 200 + 2 * MAX_STEP_S, 103.0)
    third = SteppedClock(tmp_path)
    assert third.stepped_within(101.0)
    assert not third.stepped_within(100.0)
    assert third.last_step == second.last_step


def test_a_folder_that_takes_no_record_is_no_error_here(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path / "missing")
    clock.tick(WALL, 0.0)
    clock.tick(WALL + 1e6, 1.0)
    assert clock.stepped_within(1.0)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"wall": "x", "since_step": null, "step": ""}', b"\xff"]
)
def test_a_torn_record_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLOCK_NAME).write_bytes(content)
    clock = SteppedClock(tmp_path)
    clock.tick(WALL, 1.0)
    assert not clock.stepped_within(1e15)
