"""The changes of a batch that tasks write themselves: which tables, in one job of Spark for all of them.

In: the works of a batch. Out: works that know that their changes are in. A table goes this way if its target holds the
rows of now, all of its changes are of one definition, and one task can find the last of each key; delta-rs has the last
word (`delta_rows.py`). All others are written by Spark, in the same batch. The log says when a table changes its way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from replica.schema.patterns import table_text
from streaming_source.mirroring.faults import SPARK_ERRORS
from streaming_source.mirroring.native.delta_rows import Commit
from streaming_source.mirroring.native.tasks import OUTCOME, TableTask
from streaming_source.mirroring.outlines.latest_rows import LatestOfTable, fits_one_task
from streaming_source.mirroring.outlines.table_rows import by_name_alone, parts_of_table, typed_columns
from streaming_source.mirroring.rule_check import ruled_table
from streaming_source.ruling.target_columns import MIRROR, SOURCE

if TYPE_CHECKING:
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
        chosen = [(work, folder) for work in works if (folder := self._folder_for(work)) is not None]
        for first in range(0, len(chosen), MOST_IN_A_JOB):
            some = chosen[first : first + MOST_IN_A_JOB]
            for (work, _), reason in zip(some, self._outcomes(batch, some, position), strict=True):
                work.changes_are_in = reason is None
                self._tell(work.row, reason)

    def _folder_for(self, work: TableWork) -> str | None:
        """Return where the target of a work lies that tasks can write; None: Spark writes it."""
        part = work.part
        rule = self._settings.rule_of(part.row.name)
        changes = bool(part.facts.changes) and not part.facts.partial
        plain = rule.where is None and not rule.named and by_name_alone(part.row.name) and part.mode.takes_reduced
        if work.statements or part.new or not (changes and plain) or part.other_definition():
            return None
        columns = typed_columns(part.row.table, self._settings.policy)
        if columns is None or not fits_one_task(part.facts, columns, part.row.keys):
            return None
        return self.folder(part.spark, part.row.target, part.row.defined_at)  # made again, it may lie elsewhere

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

    def _outcomes(self, batch: DataFrame, some: list[tuple[TableWork, str]], position: str) -> list[str | None]:
        """Run one job, and return for each table why its changes are not in; None: they are."""
        found: DataFrame | None = None
        for number, (work, folder) in enumerate(some):
            task = self._task(number, work, folder, position)
            one = parts_of_table(batch, work.row.name, 1).mapInArrow(task, OUTCOME)
            found = one if found is None else found.union(one)
        assert found is not None  # noqa: S101  (there is at least one)
        try:
            reasons = {row["number"]: row["reason"] for row in found.collect()}
        except SPARK_ERRORS as error:  # a worker was lost, for instance: Spark tries each table by itself
            return [f"the job ended: {type(error).__name__}"] * len(some)
        return [reasons.get(number, "its task told nothing") for number in range(len(some))]

    def _task(self, number: int, work: TableWork, folder: str, position: str) -> TableTask:
        part = work.part
        columns = typed_columns(part.row.table, self._settings.policy)
        assert columns is not None  # noqa: S101  (the work was chosen)
        names = [column.name for column in columns]
        ruled = ruled_table(part.spark, part.row.table, self._settings)
        return TableTask(
            number=number,
            folder=folder,
            latest=LatestOfTable(part.row.name, columns, tuple(str(names.index(key)) for key in part.row.keys)),
            names=tuple(column.name for column in ruled.columns),
            keys=part.row.keys,
            commit=Commit(part.row.mirror, part.number, position),
            owner=((MIRROR, part.row.mirror), (SOURCE, table_text(part.row.name))),
        )

    def _tell(self, row: ControlRow, reason: str | None) -> None:
        """Log that a table is written in another way than before."""
        if row.name not in self._reasons and reason is None:
            self._reasons[row.name] = None
        elif self._reasons.get(row.name, "") != reason:
            self._reasons[row.name] = reason
            by = "a task itself" if reason is None else f"Spark's MERGE: {reason}"
            _log.info("Changes of %s are written by %s", table_text(row.name), by)


def _local(location: str) -> str | None:
    """Return the path of a folder on a disk, as Spark names its place; None for other storage."""
    place = urlsplit(location)
    return unquote(place.path) if place.scheme in ("", "file") else None
