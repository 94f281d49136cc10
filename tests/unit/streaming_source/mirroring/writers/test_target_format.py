"""The model of a target in memory holds what every writer of targets has to hold."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.mirroring.writers.target_model import CrashError, ModelTarget, Row, Stored
from tests.mirroring.writers.writer_contract import altered_and_filled

if TYPE_CHECKING:
    from streaming_source.mirroring.writers.target_format import TableWriter

STEPS = 9
"""Six actions of an ALTER, the values of a column, rows that were read, and changes."""


def tried(stored: Stored, left: int | None = None) -> list[Row]:
    stored.left = left
    target: TableWriter = ModelTarget(stored)
    altered_and_filled(target)
    return stored.rows


def made() -> Stored:
    first = {"id": 1, "a": 11, "b": 12, "c": 13, "n": 14}
    return Stored(dict.fromkeys(first, "INT"), [first, {"id": 2, "a": 21, "b": 22, "c": 23, "n": 24}])


def test_a_batch_that_is_broken_off_before_any_commit_is_in_the_target_once() -> None:
    wanted = tried(made())
    assert [row["id"] for row in wanted] == [2, 3, 1]
    assert wanted[0] == {"id": 2, "b": 21, "a": 22, "n": 24, "c": "7"}
    for left in range(STEPS):
        stored = made()
        with contextlib.suppress(CrashError):
            tried(stored, left)
        assert len(stored.tokens) == left
        assert [tried(stored), tried(stored)] == [wanted, wanted]
