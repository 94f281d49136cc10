"""The tables of a batch that are written without Spark's MERGE: which they are, and one Spark job for all of them.

`NativeWriter.write` takes the works of a batch and marks what is in. Changes of a table are merged by the one task
that decodes them. New rows are written as files by all tasks, and appended by one commit of the driver. A table goes
this way if all of its rows are of one definition, and delta-rs can write its target; `mirror_status` and the log name
the reason for every other table, which Spark writes in the same batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ReplicaError
from replica.schema.patterns import table_text
from streaming_source.mirroring.apply.left_out import columns_left_out
from streaming_source.mirroring.batch.latest_rows import MOST_CHANGES, LatestOfTable
from streaming_source.mirroring.batch.table_rows import tasks_for, typed_columns
from streaming_source.mirroring.reading.rule_check import ruled_table
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, remove_files
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    append_files,
    is_as_created,
    open_target,
    remove_rows,
)
from streaming_source.mirroring.writers.native.tasks import ChangesTask, RowsTask, run
from streaming_source.mirroring.writers.versions import METADATA, READS
from streaming_source.queries.delta_folder import folder_of, known_folder
from streaming_source.queries.short_errors import SPARK_ERRORS
from streaming_source.ruling.target_columns import MIRROR, SOURCE
from streaming_source.schema.target_modes import CURRENT, SOFT_DELETE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.apply.table_part import TablePart
    from streaming_source.mirroring.apply.table_work import TableWork
    from streaming_source.mirroring.batch.batch_facts import BatchFacts, PackedPart
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.partial_images import OmittedColumns
    from streaming_source.mirroring.writers.native.tasks import Outcome, Rows
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn
    from streaming_source.schema.row_schema import TableColumn

    Outcomes = dict[int, list[Outcome]]
    Parts = Mapping[TableName, list[PackedPart]]

NATIVE: Final = "native"
SPARK: Final = "spark"
TASKS_A_CORE: Final = 4
"""Small tables share a task of Spark's, which costs as much as writing one of them."""
MOST_BATCH_BYTES: Final = 256 << 20
"""Bytes of the binlog that one task merges: a batch has no more, unless a transaction is larger. A few long rows, as of
100 MB, would need a much larger JVM if Spark wrote them."""
LONGEST_REASON: Final = 300
"""Characters of a reason in the control table."""
_log = logging.getLogger(__name__)


class _TableTasks(NamedTuple):
    """The functions by which tasks write one table. `appended`: the rows that the tasks of the second one share."""

    work: TableWork
    folder: str
    target: TargetShape
    commit: Commit
    changes: ChangesTask | None
    rows: RowsTask | None
    appended: int


class NativeWriter:
    """One per start of a mirror."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._folders: dict[tuple[str, str | None], str | None] = {}
        self._known_left_out: dict[TableName, tuple[object, OmittedColumns]] = {}

    def write(self, spark: SparkSession, works: list[TableWork], facts: BatchFacts) -> None:
        """Write all tables that tasks can write.

        Args:
            spark: the session of the batch.
            works: the works on its tables. Those of tables that are in are marked.
            facts: what the batch has of them.
        """
        if self._settings.writer != NATIVE:
            for work in works:
                work.part.row = work.row._replace(writer=SPARK)
            return
        chosen: list[_TableTasks] = []
        for work in works:
            try:
                tasks = self._tasks(work, 2 * len(chosen))
            except (NativeWriteError, ReplicaError, *SPARK_ERRORS) as refused:  # Spark meets what is wrong, too
                self._report(work, str(refused))
            else:
                chosen += [] if tasks is None else [tasks]
        if chosen:
            outcomes = _outcomes(spark, chosen, facts.parts)
            for tasks in chosen:
                self._report(tasks.work, _finish(tasks, outcomes))

    def folder(self, spark: SparkSession, table: str, made: str | None = None) -> str | None:
        """Return where a table lies that can be written without Spark; None: nowhere. `made` tells tables of one name
        apart.
        """
        if self._settings.writer != NATIVE:
            return None
        if (table, made) not in self._folders:
            try:
                self._folders[table, made] = folder_of(spark, table)
            except SPARK_ERRORS:  # what is wrong with it, who writes it meets and tells
                return None
        return self._folders[table, made]

    def _tasks(self, work: TableWork, number: int) -> _TableTasks | None:
        """Return the tasks that write a table; None if no rows of it go in.

        Raises:
            NativeWriteError: why Spark has to write it.
        """
        part, row, facts = work.part, work.row, work.part.facts
        if not work.has_rows or part.other_definition():
            return None
        columns = typed_columns(row.table, self._settings.policy, times=True)
        if columns is None or not part.plain:
            raise NativeWriteError("its rows need a rule, or a type that only Spark converts")
        if not part.mode.append_only:
            _check_rows(part)
        folder = part.folder
        if folder is None:
            raise NativeWriteError("its storage is no local disk")
        ruled = ruled_table(part.spark, row.table, self._settings)
        target = _shape(row, tuple(column.name for column in part.mode.columns(ruled.columns)))
        commit = part.commit

        def files(latest: LatestOfTable, rows: Rows = "new") -> RowsTask:
            return RowsTask(number + 1, folder, latest, target, open_target(folder, target), rows)

        if part.mode.append_only or not row.keys:
            everything = files(LatestOfTable(row.name, columns, ()), "new" if part.mode.append_only else "inserted")
            return _TableTasks(work, folder, target, commit, None, everything, facts.rows)
        latest = _net_changes(work, columns)
        if part.new and facts.changes:
            return _TableTasks(work, folder, target, commit, None, files(latest, "first"), 1)
        left_out = self._left_out(part, columns) if facts.partial else None
        changes = ChangesTask(number, folder, latest, target, commit, left_out) if facts.changes else None
        rows = None
        if facts.reads and part.mode.can_append(part.target):
            rows = files(latest)
        elif not facts.changes:
            raise NativeWriteError("rows that are read may bring deleted ones back")
        return _TableTasks(work, folder, target, commit, changes, rows, facts.reads)

    def _left_out(self, part: TablePart, columns: tuple[TableColumn, ...]) -> OmittedColumns:
        """Return what is known of columns that images lack, by the definition of the table."""
        row = part.row
        asked = (row.definition, tuple(row.defaults.items()))
        known = self._known_left_out.get(row.name)
        if known is None or known[0] != asked:
            known = asked, columns_left_out(part.spark, row, columns, self._settings.policy)
            self._known_left_out[row.name] = known
        return known[1]

    def _report(self, work: TableWork, reason: str | None) -> None:
        """Note what writes a table, and log if it is another writer than before."""
        row, by = work.row, NATIVE if reason is None else f"{SPARK}: {reason[:LONGEST_REASON]}"
        if (row.writer or "").partition(":")[0] != by.partition(":")[0]:
            _log.info("%s is written by %s", table_text(row.name), by)
        work.part.row = row._replace(writer=by)


def renewed(
    spark: SparkSession, table: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]
) -> bool:
    """Remove all rows of a target that is as a new one would be, for which Spark needs seconds.

    Args:
        spark: the session of the batch.
        table: the target as SQL names it.
        columns: those of the new target.
        comment: its comment.
        properties: its properties, among them its owner.

    Returns:
        False if it is not, or delta-rs cannot write it: nothing was done.
    """
    try:
        folder = known_folder(spark, table)
        if folder is None or not is_as_created(folder, columns, comment, properties):
            return False
        remove_rows(folder, TargetShape(CURRENT, (), (), ()), str(spark.conf.get(METADATA)))
    except (NativeWriteError, *SPARK_ERRORS) as refused:
        _log.debug("%s is made by Spark: %s", table, refused)
        return False
    return True


def _shape(row: ControlRow, names: tuple[str, ...] = ()) -> TargetShape:
    owner = ((MIRROR, row.mirror), (SOURCE, table_text(row.name)))
    return TargetShape(row.mode, names, row.keys, owner)


def _check_rows(part: TablePart) -> None:
    """Refuse rows that tasks cannot bring into a target other than a log.

    Raises:
        NativeWriteError: why not.
    """
    if part.facts.partial and not _takes_partial(part):
        raise NativeWriteError("images of its rows lack columns")
    if part.new and part.facts.changes and not part.made:
        raise NativeWriteError("its first rows and changes come together, and older rows stay")


def _takes_partial(part: TablePart) -> bool:
    """Tell whether a task can find the net changes of images that lack columns. It cannot with rows that were read:
    some servers never log generated columns.
    """
    changes_alone = part.facts.changes and not part.facts.reads and not part.new
    return bool(changes_alone and part.row.keys and part.row.mode == CURRENT)


def _net_changes(work: TableWork, columns: tuple[TableColumn, ...]) -> LatestOfTable:
    """Return what finds the net changes of a table.

    Raises:
        NativeWriteError: one task cannot.
    """
    part, facts = work.part, work.part.facts
    if facts.changes and part.new and (facts.rows > MOST_CHANGES or work.row.mode not in (CURRENT, SOFT_DELETE)):
        raise NativeWriteError("its first rows and changes come together, and are too many or make versions")
    if not facts.changes:
        return LatestOfTable(work.row.name, columns, ())
    latest = part.one_task(columns, MOST_BATCH_BYTES, partial=True)
    if latest is None:
        raise NativeWriteError("its changes are too many for one task, or are of several domains")
    return latest


def _outcomes(spark: SparkSession, chosen: Sequence[_TableTasks], parts: Parts) -> Outcomes:
    """Run one job, and return what its functions reported, by their numbers.

    The job has no plan of Spark SQL: that of twelve tables took a second, four times as long as the tasks.
    """
    context = spark.sparkContext
    cores = context.defaultParallelism
    jobs: list[tuple[ChangesTask | RowsTask, Sequence[PackedPart]]] = []
    for tasks in chosen:
        of_table = parts[tasks.work.row.name]
        if tasks.changes is not None:
            jobs.append((tasks.changes, of_table))
        if tasks.rows is not None:
            count = tasks_for(tasks.appended, cores)
            shares = [of_table[first::count] for first in range(count)]
            jobs += [(tasks.rows, share) for share in shares if share]
    found: Outcomes = {}
    try:
        slices = min(len(jobs), TASKS_A_CORE * cores)
        reported = context.parallelize(jobs, slices).mapPartitions(run).collect()
    except SPARK_ERRORS as error:  # a worker was lost, for instance: Spark tries each table by itself
        _log.debug("the job of the native writer ended", exc_info=True)
        reason = f"the job ended: {type(error).__name__}"
        return {number: [(number, None, reason)] for tasks in chosen for number in _numbers(tasks)}
    for outcome in reported:
        found.setdefault(outcome[0], []).append(outcome)
    return found


def _numbers(tasks: _TableTasks) -> list[int]:
    return [task.number for task in (tasks.changes, tasks.rows) if task is not None]


def _finish(tasks: _TableTasks, outcomes: Outcomes) -> str | None:
    """Append the files of a table after its changes, and mark what is in; return why not all of it is."""
    work = tasks.work
    reason = None
    if tasks.changes is not None:
        _, reason = _reported(outcomes, tasks.changes.number)
        work.changes_are_in = reason is None
    if tasks.rows is None:
        return reason
    files, failed = _reported(outcomes, tasks.rows.number)
    reason = reason or failed or _lacking(tasks, files)
    added = False
    if reason is None:
        try:
            commit = tasks.commit.of(READS)
            added = bool(files) and append_files(tasks.folder, files, tasks.target, commit, once=not work.part.made)
            work.reads_are_in = True
            work.changes_are_in |= tasks.rows.with_changes
        except NativeWriteError as refused:
            reason = str(refused)
    if not added:
        remove_files(tasks.folder, files)
    return reason


def _reported(outcomes: Outcomes, number: int) -> tuple[list[DataFile], str | None]:
    """Return the files that tasks wrote with one function, and why one of them wrote nothing."""
    reported = outcomes.get(number, [(number, None, "its task reported nothing")])
    files = [file for _, file, _ in reported if file is not None]
    return files, next((why for _, _, why in reported if why is not None), None)


def _lacking(tasks: _TableTasks, files: Sequence[DataFile]) -> str | None:
    """Return that files do not have all rows that were read; None if they have, or their number says nothing of it."""
    assert tasks.rows is not None  # noqa: S101
    work, written = tasks.work, sum(file.rows for file in files)
    expected = {"new": work.facts.reads, "inserted": work.facts.rows}.get(tasks.rows.rows, written)
    if work.part.mode.append_only or written == expected:
        return None
    return f"its files have {written} rows of {expected}"
