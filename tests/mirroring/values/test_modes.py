"""Modes of a table: random histories of keys, images whole and partial, every batch twice, beside a plain walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.mirroring.values.mode_model import Walk, random_changes

if TYPE_CHECKING:
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_RUN = """
from tests.mirroring.values.mode_model import brought_in, random_changes
result = brought_in(spark, {mode!r}, random_changes({seed}, 90), {seed})
"""


@pytest.mark.parametrize("mode", ["history", "soft_delete"])
@pytest.mark.parametrize("seed", [1, 2])
def test_batches_that_come_twice_leave_what_a_plain_walk_finds(workbench: Workbench, mode: str, seed: int) -> None:
    walk = Walk()
    for change in random_changes(seed, 90):
        walk.meet(change)
    behind, emptied = workbench.run(_RUN.format(mode=mode, seed=seed))
    assert behind == walk.rows(mode)
    walk.truncate()
    assert emptied == walk.rows(mode)
