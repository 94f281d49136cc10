"""Choose Spark's settings for MERGEs, by how large their targets are and how much of them changes.

In: the session of a batch, the size of a target that is written next. Out: settings in that session alone.

Small plans are interpreted: a MERGE makes the code of 68 projections and of its stages, whatever it changes, and below
some rows that costs more than running the plan does. And where a good part of a target changes, or it is small, its
files are written again: to mark rows as deleted takes two more jobs, and leaves a small file a batch, which each later
MERGE reads. What the user has set stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

MOST_ROWS: Final = 50_000
"""The rows of the largest target whose plans are interpreted; docs/performance.md has what was measured around it."""
INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own values, given by name: the execution of a whole micro-batch hands its tasks what was set as it began, and
that holds in each execution within it which finds nothing set."""

MOST_WHOLE_ROWS: Final = 500_000
"""The rows of the largest target that is written again: with a million, marking rows costs as much."""
COPIED_A_CHANGE: Final = 20
"""How many rows are copied for each change at most, where the target is not small: the old files stay until VACUUM."""
_MARKS: Final = "spark.databricks.delta.merge.deletionVectors.persistent"
WHOLE_FILES: Final = {_MARKS: "false"}
MARKED_ROWS: Final = {_MARKS: "true"}


class TargetSize(NamedTuple):
    """Tell how many rows a target has at most behind a batch, and how many changes a MERGE brings into it."""

    rows: int
    changes: int

    @property
    def small(self) -> bool:
        """Whether its plans are interpreted."""
        return self.rows <= MOST_ROWS

    @property
    def written_whole(self) -> bool:
        """Whether its files are written again, instead of rows in them being marked."""
        return self.small or self.rows <= min(MOST_WHOLE_ROWS, COPIED_A_CHANGE * self.changes)


class MergeSettings:
    """The settings in the session of a mirror's query."""

    def __init__(self) -> None:
        self._plans = _Choice(INTERPRETED, COMPILED)
        self._files = _Choice(WHOLE_FILES, MARKED_ROWS)

    def fit(self, spark: SparkSession, size: TargetSize) -> None:
        """Set how MERGEs into targets of this size are run."""
        self._plans.make(spark, first=size.small)
        self._files.make(spark, first=size.written_whole)


class _Choice:
    """One of two values for each of some settings, unless the user has set one of them."""

    def __init__(self, first: Mapping[str, str], second: Mapping[str, str]) -> None:
        self._first, self._second = first, second
        self._free: bool | None = None

    def make(self, spark: SparkSession, *, first: bool) -> None:
        if self._free is None:  # what stands there now is the user's
            self._free = all(spark.conf.get(name, None) is None for name in self._first)
        if self._free:
            for name, value in (self._first if first else self._second).items():
                spark.conf.set(name, value)
