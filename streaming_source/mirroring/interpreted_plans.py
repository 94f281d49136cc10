"""Choose whether the plans of a batch are interpreted or compiled, by how large the targets are.

In: the session of a batch, the rows of the largest target that is written next. Out: Spark's settings for it, in that
session alone. A MERGE makes the code of 68 projections and of its stages, whatever it changes; Spark keeps 100 compiled
classes for all of its plans, so that most are compiled again for each target. Below some rows that costs more than
running the plan does, and the plan is interpreted. What the user has set stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_ROWS: Final = 50_000
"""The rows of the largest target whose plans are interpreted; docs/performance.md has what was measured around it."""
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own values, given by name: the execution of a whole micro-batch hands its tasks what was set as it began, and
that holds in each execution within it which finds nothing set."""


def is_small(rows: int) -> bool:
    """Tell whether the plans of a target of so many rows are interpreted."""
    return rows <= MOST_ROWS


class InterpretedPlans:
    """The settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._free: bool | None = None

    def fit(self, spark: SparkSession, rows: int) -> None:
        """Set how plans are run whose largest target has so many rows."""
        if self._free is None:  # what stands there now is the user's
            self._free = all(spark.conf.get(name, None) is None for name in INTERPRETED)
        if not self._free:
            return
        for name, value in (INTERPRETED if is_small(rows) else COMPILED).items():
            spark.conf.set(name, value)
