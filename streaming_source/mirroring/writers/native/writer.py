"""Choice of the tables that are written without Spark's MERGE, and the one Spark job that writes them.

`NativeWriter.write` takes the work of a micro-batch and marks what it has written. The task that decodes the changes of
a table also merges them. All tasks write new rows as files, and the driver appends them in one commit. A table is
written natively if all of its rows have one definition, and delta-rs can write its target. `mirror_status` and the log
have the reason for every other table, which Spark writes in the same micro-batch.
"""

from __future__ import annotations

import contextlib
import logging
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, ReplicaError
from replica.schema.patterns import table_text
from streaming_source.mirroring.apply.table_applier import omitted_columns
from streaming_source.mirroring.batch.latest_rows import MOST_CHANGES, LatestOfTable
from streaming_source.mirroring.batch.table_rows import tasks_for, typed_columns
from streaming_source.mirroring.reading.rules import transformed_table
from streaming_source.mirroring.writers.native.data_files import NativeWriteError, remove_files
from streaming_source.mirroring.writers.native.delta_rows import (
    TargetShape,
    append_files,
    has_rows,
    is_as_created,
    open_target,
    remove_rows,
)
from streaming_source.mirroring.writers.native.tasks import ChangesTask, CountedTask, RowsTask, TaskOutcome, run
from streaming_source.mirroring.writers.target_format import METADATA, READS
from streaming_source.schema.target_modes import CURRENT, SOFT_DELETE
from streaming_source.sinks.delta import folder_of, known_folder
from streaming_source.sinks.queries import SPARK_ERRORS
from streaming_source.sinks.storage import storage_of
from streaming_source.transforms.transformed_images import MIRROR, SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.apply.table_applier import TableApplier, TableBatch
    from streaming_source.mirroring.batch.batch_facts import BatchFacts, PackedPart, TableChanges
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.settings import MirrorSettings
    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns
    from streaming_source.mirroring.writers.native.tasks import Rows, Task
    from streaming_source.mirroring.writers.target_format import Commit
    from streaming_source.schema.row_schema import TableColumn
    from streaming_source.transforms.transformed_images import TargetColumn

    Outcomes = dict[int, list[TaskOutcome]]
    Parts = Mapping[TableName, list[PackedPart]]

NATIVE: Final = "native"
SPARK: Final = "spark"
TASKS_A_CORE: Final = 4
"""Most tasks for each core. Small tables share a Spark task, which costs as much as writing one of them."""
MOST_BATCH_BYTES: Final = 256 << 20
"""Most bytes of the binlog that one task merges. A micro-batch has no more, unless a transaction is larger.

A few long rows, for instance of 100 MB, would need a much larger JVM if Spark wrote them.
"""
LONGEST_REASON: Final = 300
"""Most characters of a reason in the control table."""
_log = logging.getLogger(__name__)


class _TableTasks(NamedTuple):
    """Functions with which tasks write one table.

    Attributes:
        number: the first of its two task numbers in the job.
        appended: the number of rows that the tasks of `rows` share.
    """

    work: TableApplier
    number: int
    folder: str
    target: TargetShape
    commit: Commit
    changes: ChangesTask | None = None
    rows: RowsTask | CountedTask | None = None
    appended: int = 0

    def files(self, latest: LatestOfTable, rows: Rows = "new") -> RowsTask:
        """Return the function that writes rows as files."""
        schema = open_target(self.folder, self.target)
        return RowsTask(self.number + 1, self.folder, latest, self.target, schema, rows)


class NativeWriter:
    """Native writer of a mirror; one for each start."""

    def __init__(self, settings: MirrorSettings) -> None:
        self._settings = settings
        self._folders: dict[tuple[str, str | None], str | None] = {}
        self._omitted_known: dict[TableName, tuple[object, OmittedColumns]] = {}

    def write(self, spark: SparkSession, works: list[TableApplier], facts: BatchFacts) -> None:
        """Write all tables that tasks can write.

        Args:
            spark: the session of the micro-batch.
            works: the work on the tables of the micro-batch. Written rows are marked in them.
            facts: the facts of the micro-batch.
        """
        if self._settings.writer != NATIVE:
            for work in works:
                work.part.row = work.row._replace(writer=SPARK)
            return
        chosen: list[_TableTasks] = []
        for work in works:
            try:
                tasks = self._tasks(work, 2 * len(chosen))
            except (NativeWriteError, ReplicaError, *SPARK_ERRORS) as refused:  # Spark meets the same fault
                self._report(work, str(refused))
            else:
                chosen += [] if tasks is None else [tasks]
        if chosen:
            outcomes = _outcomes(spark, chosen, facts.parts)
            for tasks in chosen:
                self._report(tasks.work, _finish(tasks, outcomes))

    def folder(self, spark: SparkSession, table: str, made: str | None = None) -> str | None:
        """Return the folder of a table that can be written without Spark, or None.

        `made` identifies the creation of the table, because tables may have had the same name one after another.
        """
        if self._settings.writer != NATIVE:
            return None
        if (table, made) not in self._folders:
            try:
                self._folders[table, made] = folder_of(spark, table, self._settings.storage)
            except SPARK_ERRORS:  # the write of the table reports its fault
                return None
        return self._folders[table, made]

    def _tasks(self, work: TableApplier, number: int) -> _TableTasks | None:
        """Return the tasks that write a table; None if it has no rows to write.

        Raises:
            NativeWriteError: why Spark has to write the table.
        """
        part, row = work.part, work.row
        if not work.has_rows or part.other_definition():
            return None
        columns = typed_columns(row.table, self._settings.policy, times=True)
        if columns is None or not part.plain:
            raise NativeWriteError("its rows need a rule, or a type that only Spark converts")
        if not part.mode.append_only:
            _check_rows(part)
            if not row.keys and self._is_in(work):
                return None
        if part.folder is None:
            raise NativeWriteError("its storage is neither a local disk nor S3")
        ruled = transformed_table(part.spark, row.table, self._settings)
        target = _shape(row, tuple(column.name for column in part.mode.columns(ruled.columns)))
        tasks = _TableTasks(work, number, part.folder, target, part.commit)
        if part.mode.append_only:
            return tasks._replace(rows=tasks.files(LatestOfTable(row.name, columns, ())), appended=part.facts.rows)
        left_out = self._left_out(part, columns) if part.facts.partial else None
        return (_by_key if row.keys else _by_number)(tasks, columns, left_out)

    def _is_in(self, work: TableApplier) -> bool:
        """Return True if an earlier attempt of the micro-batch wrote the rows of a table without a key, and mark them.

        Raises:
            NativeWriteError: the log of the table cannot be read.
        """
        part = work.part
        if part.folder is None or part.made or not part.replayed or not has_rows(part.folder, part.commit):
            return False
        work.changes_are_in = work.reads_are_in = True
        self._report(work, None)
        return True

    def _left_out(self, part: TableBatch, columns: tuple[TableColumn, ...]) -> OmittedColumns:
        """Return the known values of columns that images lack, by the definition of the table."""
        row = part.row
        definition = (row.definition, tuple(row.defaults.items()))
        known = self._omitted_known.get(row.name)
        if known is None or known[0] != definition:
            known = definition, omitted_columns(part.spark, row, columns, self._settings.policy)
            self._omitted_known[row.name] = known
        return known[1]

    def _report(self, work: TableApplier, reason: str | None) -> None:
        """Record what writes a table, and log a change of the writer."""
        row, by = work.row, NATIVE if reason is None else f"{SPARK}: {reason[:LONGEST_REASON]}"
        if (row.writer or "").partition(":")[0] != by.partition(":")[0]:
            _log.info("%s is written by %s", table_text(row.name), by)
        work.part.row = row._replace(writer=by)


def renewed(
    spark: SparkSession, table: str, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]
) -> bool:
    """Delete all rows of a target that is equal to a newly created one, because Spark needs seconds to create it.

    Args:
        spark: the session of the micro-batch.
        table: the target's name in SQL.
        columns: the columns of the new target.
        comment: its comment.
        properties: its properties, including its owner.

    Returns:
        False if the target differs, or delta-rs cannot write it: nothing was done.
    """
    try:
        folder = known_folder(spark, table)
        if folder is None or not is_as_created(folder, columns, comment, properties):
            return False
        remove_rows(folder, TargetShape(CURRENT, (), (), ()), str(spark.conf.get(METADATA)))
    except (NativeWriteError, *SPARK_ERRORS) as refused:
        _log.debug("%s is created by Spark: %s", table, refused)
        return False
    return True


def _shape(row: ControlRow, names: tuple[str, ...] = ()) -> TargetShape:
    owner = ((MIRROR, row.mirror), (SOURCE, table_text(row.name)))
    return TargetShape(row.mode, names, row.keys, owner)


def _check_rows(part: TableBatch) -> None:
    """Refuse images that lack columns if tasks cannot apply them to a target other than a log.

    Raises:
        NativeWriteError: why not.
    """
    facts = part.facts
    if not facts.partial:
        return
    if not facts.changes or (part.row.keys and part.new):
        raise NativeWriteError("its first rows arrive, and some images lack columns")
    if facts.rows > MOST_CHANGES or not (part.row.keys or _are_counted(facts)):
        raise NativeWriteError("images of its rows lack columns, and they are too many for one task")
    if part.new and facts.changes and not part.made:
        raise NativeWriteError("its first rows and changes arrive together, and older rows stay")


def _are_counted(facts: TableChanges) -> bool:
    """Return True if one task counts the rows of a table without a key, for which the order of changes is irrelevant.

    If there are more rows, they are appended. The append is refused if a row was changed or deleted.
    """
    return bool(facts.changes) and facts.rows <= MOST_CHANGES and facts.bytes <= MOST_BATCH_BYTES


def _by_key(tasks: _TableTasks, columns: tuple[TableColumn, ...], left_out: OmittedColumns | None) -> _TableTasks:
    """Return the functions for a table with a key: its changes are merged, and new rows appended.

    Raises:
        NativeWriteError: why Spark has to write the table.
    """
    work, part, facts = tasks.work, tasks.work.part, tasks.work.facts
    latest = _net_changes(work, columns)
    if part.new and facts.changes:
        return tasks._replace(rows=tasks.files(latest, "first"), appended=1)
    if facts.changes:
        changes = ChangesTask(tasks.number, tasks.folder, latest, tasks.target, tasks.commit, left_out)
        tasks = tasks._replace(changes=changes)
    if left_out is not None:
        return tasks
    if facts.reads and part.mode.can_append(part.target):
        return tasks._replace(rows=tasks.files(latest), appended=facts.reads)
    if not facts.changes:
        raise NativeWriteError("snapshot rows may restore deleted rows")
    return tasks


def _by_number(tasks: _TableTasks, columns: tuple[TableColumn, ...], left_out: OmittedColumns | None) -> _TableTasks:
    """Return the functions for a table without a key, whose rows in a micro-batch are one commit."""
    latest, facts = LatestOfTable(tasks.work.row.name, columns, ()), tasks.work.facts
    if not _are_counted(facts):
        return tasks._replace(rows=tasks.files(latest, "inserted"), appended=facts.rows)
    counted = CountedTask(tasks.number + 1, tasks.folder, latest, tasks.target, left_out)
    return tasks._replace(rows=counted, appended=1)


def _net_changes(work: TableApplier, columns: tuple[TableColumn, ...]) -> LatestOfTable:
    """Return the function that finds the net changes of a table.

    Raises:
        NativeWriteError: one task cannot find them.
    """
    part, facts = work.part, work.part.facts
    if facts.changes and part.new and (facts.rows > MOST_CHANGES or work.row.mode not in (CURRENT, SOFT_DELETE)):
        raise NativeWriteError("its first rows and changes arrive together, and are too many or create versions")
    if not facts.changes:
        return LatestOfTable(work.row.name, columns, ())
    latest = part.one_task(columns, MOST_BATCH_BYTES, partial=True)
    if latest is None:
        raise NativeWriteError("its changes are too many for one task, or belong to several domains")
    return latest


def _outcomes(spark: SparkSession, chosen: Sequence[_TableTasks], parts: Parts) -> Outcomes:
    """Run one Spark job, and return the reports of its functions by their numbers.

    The job has no plan of Spark SQL: for twelve tables a plan took a second, four times as long as the tasks.
    """
    context = spark.sparkContext
    cores = context.defaultParallelism
    jobs: list[tuple[Task, Sequence[PackedPart]]] = []
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
        # The options are in the function, which Spark neither prints nor writes to a file, as it does with jobs.
        function = partial(run, storage_of(tasks.folder for tasks in chosen))
        reported = context.parallelize(jobs, slices).mapPartitions(function).collect()
    except SPARK_ERRORS as error:  # for instance a lost worker: Spark then writes each table
        _log.debug("the job of the native writer ended", exc_info=True)
        reason = f"the job ended: {type(error).__name__}"
        return {number: [TaskOutcome(number, reason)] for tasks in chosen for number in _numbers(tasks)}
    for outcome in reported:
        found.setdefault(outcome.number, []).append(outcome)
    return found


def _numbers(tasks: _TableTasks) -> list[int]:
    return [task.number for task in (tasks.changes, tasks.rows) if task is not None]


def _finish(tasks: _TableTasks, outcomes: Outcomes) -> str | None:
    """Append the files of a table after its changes, and mark what is written.

    Return why something is not written, or None.
    """
    work = tasks.work
    reason = None
    if tasks.changes is not None:
        reason = _reported(outcomes, tasks.changes.number).reason
        work.changes_are_in = reason is None
        work.reads_are_in = reason is None and tasks.changes.left_out is not None
    if tasks.rows is None:
        return reason
    written = _reported(outcomes, tasks.rows.number)
    reason = reason or written.reason or _lacking(tasks, written.files)
    if reason is not None:
        with contextlib.suppress(OSError):  # files without a commit; VACUUM removes the rest
            remove_files(tasks.folder, written.files)
        return reason
    try:
        if written.files or written.replaced:
            commit, once = tasks.commit.of(READS), not work.part.made
            append_files(tasks.folder, written.files, tasks.target, commit, once=once, replaced=written.replaced)
    except NativeWriteError as refused:
        return str(refused)
    work.reads_are_in = True
    work.changes_are_in |= tasks.rows.with_changes
    return None


def _reported(outcomes: Outcomes, number: int) -> TaskOutcome:
    """Return the combined report of the tasks of one function."""
    reported = outcomes.get(number, [TaskOutcome(number, "its task reported nothing")])
    reason = next((one.reason for one in reported if one.reason is not None), None)
    files = tuple(file for one in reported for file in one.files)
    return TaskOutcome(number, reason, files, tuple(file for one in reported for file in one.replaced))


def _lacking(tasks: _TableTasks, files: Sequence[DataFile]) -> str | None:
    """Return an error text if files lack snapshot rows; None if all rows are there or their number is unknown."""
    assert tasks.rows is not None  # noqa: S101
    work, written = tasks.work, sum(file.rows for file in files)
    expected = {"new": work.facts.reads, "inserted": work.facts.rows}.get(tasks.rows.rows, written)
    if work.part.mode.append_only or written == expected:
        return None
    return f"its files have {written} of {expected} rows"


OLDEST: Final = (1, 6, 6)
NEXT: Final = (1, 7)
"""First version that is not supported. pyproject.toml has the same limits."""
_HINT: Final = (
    'Install "deltalake>=1.6.6,<1.7" in the driver and on all executors, or have Spark write all tables (writer=spark).'
)


@cache
def check_worker() -> None:
    """Refuse to write in a worker without a supported deltalake; the result is cached in each process.

    Raises:
        ConfigError: deltalake is not installed, or has another version.
    """
    check_deltalake()


def check_deltalake() -> None:
    """Refuse to start without a supported version of deltalake.

    Raises:
        ConfigError: deltalake is not installed, or has another version.
    """
    try:
        found = version("deltalake")
    except PackageNotFoundError:
        raise ConfigError("a mirror writes Delta tables with deltalake, which is not installed.", hint=_HINT) from None
    numbers = tuple(int(part) if part.isdigit() else 0 for part in found.split(".")[:3])
    if not OLDEST <= numbers < NEXT:
        raise ConfigError(f"deltalake {found} is installed, a version that the mirror does not support.", hint=_HINT)
