"""The changes of a batch that tasks write themselves: which tables, in one job of Spark for all of them.

In: the works of a batch. Out: works that know that their changes are in. A table goes this way if its target holds the
rows of now, all of its changes are of one definition, and one task can find the last of each key; delta-rs has the last
word (`delta_rows.py`). All others are written by Spark, in the same batch. The log says when a table changes its way.
"""

from __future__ import annotations

import logging
from functools import reduce
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from replica.schema.patterns import table_text
from streaming_source.mirroring.faults import SPARK_ERRORS
from streaming_source.mirroring.native.delta_rows import Commit
from streaming_source.mirroring.native.tasks import OUTCOME, TableTask
from streaming_source.mirroring.outlines.table_rows import parts_of_table, typed_columns
from streaming_source.mirroring.rule_check import ruled_table
from streaming_source.ruling.target_columns import MIRROR, SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control_row import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.table_work import TableWork

NATIVE: Final = "native"
MOST_IN_A_JOB: Final = 200
"""Each table is a branch of the job's plan, and the plan of so many takes Spark less than a second."""
_log = logging.getLogger(__name__)


class NativeChanges:
    """One per start of a mirror."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._folders: dict[tuple[str, str | None], str | None] = {}
        self._reasons: dict[TableName, str | None] = {}

    def bring_in(self, batch: DataFrame, works: list[TableWork], position: str) -> None:
        """Let tasks write the changes of all tables that they can; `position`: GTID position at the batch's end."""
        if self._settings.writer != NATIVE:
            return
        numbered = ((work, self._task(work, number, position)) for number, work in enumerate(works))
        chosen = [(work, task) for work, task in numbered if task is not None]
        for first in range(0, len(chosen), MOST_IN_A_JOB):
            some = chosen[first : first + MOST_IN_A_JOB]
            for (work, _), reason in zip(some, _outcomes(batch, [task for _, task in some]), strict=True):
                work.changes_are_in = reason is None
                self._tell(work.row, reason)

    def _task(self, work: TableWork, number: int, position: str) -> TableTask | None:
        """Return the task that writes the changes of a table; None: Spark writes them."""
        part, row = work.part, work.row
        if work.statements or part.new or not part.facts.changes or part.other_definition():
            return None
        columns = typed_columns(row.table, self._settings.policy)
        latest = None if columns is None else part.one_task(columns)
        # A target that is made again may lie elsewhere.
        folder = None if latest is None else self.folder(part.spark, row.target, row.defined_at)
        if latest is None or folder is None:
            return None
        return TableTask(
            number=number,
            folder=folder,
            latest=latest,
            names=tuple(column.name for column in ruled_table(part.spark, row.table, self._settings).columns),
            keys=row.keys,
            commit=Commit(row.mirror, part.number, position),
            owner=((MIRROR, row.mirror), (SOURCE, table_text(row.name))),
        )

    def folder(self, spark: SparkSession, table: str, made: str | None = None) -> str | None:
        """Return where a table lies that tasks, or we, can write without Spark; None: nowhere. `made` tells tables of
        one name apart.
        """
        if self._settings.writer != NATIVE:
            return None
        if (table, made) not in self._folders:
            try:
                told = spark.sql(f"DESCRIBE DETAIL {table}").select("location").first()
            except SPARK_ERRORS:  # what is wrong with it, who writes it meets and tells
                return None
            self._folders[table, made] = None if told is None else _local(str(told[0]))
        return self._folders[table, made]

    def _tell(self, row: ControlRow, reason: str | None) -> None:
        """Log that a table is written in another way than before."""
        if self._reasons.get(row.name) != reason:
            self._reasons[row.name] = reason
            by = "a task itself" if reason is None else f"Spark's MERGE: {reason}"
            _log.info("Changes of %s are written by %s", table_text(row.name), by)


def _outcomes(batch: DataFrame, tasks: Sequence[TableTask]) -> list[str | None]:
    """Run one job, and return for each task why the changes of its table are not in; None: they are."""
    jobs = [parts_of_table(batch, task.latest.name, 1).mapInArrow(task, OUTCOME) for task in tasks]
    try:
        reasons = {row["number"]: row["reason"] for row in reduce(lambda some, one: some.union(one), jobs).collect()}
    except SPARK_ERRORS as error:  # a worker was lost, for instance: Spark tries each table by itself
        return [f"the job ended: {type(error).__name__}"] * len(tasks)
    return [reasons.get(task.number, "its task told nothing") for task in tasks]


def _local(location: str) -> str | None:
    """Return the path of a folder on a disk, as Spark names its place; None for other storage."""
    place = urlsplit(location)
    return unquote(place.path) if place.scheme in ("", "file") else None
