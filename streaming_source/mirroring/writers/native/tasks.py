"""Functions of tasks that write one table: its part of a micro-batch becomes a commit, or files without one.

In: the partitions of a micro-batch that have rows of the table. Out: a `TaskOutcome`, with the files that the driver
has to commit. An error of one table never ends the task: Spark then writes that table, meets the same error, and
reports it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from streaming_source.driver.same_version import OfThisVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from streaming_source.mirroring.batch.batch_facts import PackedPart
    from streaming_source.mirroring.batch.latest_rows import LatestOfTable
    from streaming_source.mirroring.writers.native.data_files import DataFile, TableFile
    from streaming_source.mirroring.writers.native.delta_rows import TargetShape
    from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns
    from streaming_source.mirroring.writers.target_format import Commit

Rows = Literal["new", "first", "inserted", "counted"]
"""Rows that a task writes: "new" are snapshot rows, or all rows in append_log; other values include changes."""
_log = logging.getLogger(__name__)


class TaskOutcome(NamedTuple):
    """Report of a task.

    Attributes:
        number: the number of the task.
        reason: why it wrote nothing; None if it wrote.
        files: the files that it wrote, for the driver to commit.
        replaced: the files of the table that these files replace.
    """

    number: int
    reason: str | None = None
    files: tuple[DataFile, ...] = ()
    replaced: tuple[TableFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangesTask(OfThisVersion):
    """Function of the one task that merges the changes of a table.

    Attributes:
        number: its number among the functions of one job.
        left_out: the known values of columns that images lack, if some do. Then snapshot rows are merged too.
    """

    number: int
    folder: str
    latest: LatestOfTable
    target: TargetShape
    commit: Commit
    left_out: OmittedColumns | None = None

    def __call__(self, batches: Sequence[pa.RecordBatch]) -> TaskOutcome:
        from streaming_source.mirroring.writers.native.delta_rows import merge_rows
        from streaming_source.mirroring.writers.native.merge.net_changes import net_changes

        def write() -> None:
            rows = net_changes(self.target.mode, self.latest, batches, self.left_out)
            if rows is not None:
                merge_rows(self.folder, rows, self.target, self.commit)

        return TaskOutcome(self.number, _reason(self.folder, write))


@dataclass(frozen=True, slots=True)
class RowsTask(OfThisVersion):
    """Function of the tasks that write new rows of a table as files.

    Attributes:
        schema: the schema of the table, as delta-rs reports it.
        rows: which rows. "first" is the first state of a new table, from snapshot rows and changes, in one task.
            "inserted" is for a table without a key.
    """

    number: int
    folder: str
    latest: LatestOfTable
    target: TargetShape
    schema: pa.Schema
    rows: Rows = "new"

    @property
    def with_changes(self) -> bool:
        """Whether the files also have the changes of the micro-batch."""
        return self.rows != "new"

    def __call__(self, batches: Sequence[pa.RecordBatch]) -> TaskOutcome:
        from streaming_source.mirroring.writers.native.data_files import write_file
        from streaming_source.mirroring.writers.native.merge.net_changes import (
            first_state,
            inserted_rows,
            new_rows,
        )

        made = {"new": new_rows, "first": first_state, "inserted": inserted_rows}[self.rows]
        written: list[DataFile] = []

        def write() -> None:
            rows = made(self.target.mode, self.latest, batches)
            new = write_file(self.folder, self.schema, self.target.names, rows)
            written.extend([] if new is None else [new])

        reason = _reason(self.folder, write)
        return TaskOutcome(self.number, reason, tuple(written))


@dataclass(frozen=True, slots=True)
class CountedTask(OfThisVersion):
    """Function of the one task that counts the rows of a table without a key, and writes files that the driver commits.

    Attributes:
        left_out: the known values of columns that images lack, if some do.
    """

    number: int
    folder: str
    latest: LatestOfTable
    target: TargetShape
    left_out: OmittedColumns | None = None
    rows: ClassVar[Rows] = "counted"
    with_changes: ClassVar[bool] = True

    def __call__(self, batches: Sequence[pa.RecordBatch]) -> TaskOutcome:
        from streaming_source.mirroring.writers.native.merge.counted_rows import count_in

        written: list[tuple[list[DataFile], list[TableFile]]] = []

        def write() -> None:
            written.append(count_in(self.folder, self.target, self.latest, batches, self.left_out))

        reason = _reason(self.folder, write)
        files, replaced = next(iter(written), ([], []))
        return TaskOutcome(self.number, reason, tuple(files), tuple(replaced))


Task = ChangesTask | RowsTask | CountedTask


def run(
    storage: Mapping[str, Mapping[str, str]], jobs: Iterable[tuple[Task, Sequence[PackedPart]]]
) -> Iterator[TaskOutcome]:
    """Call functions, each with the partitions that have rows of its table.

    Args:
        storage: the options of the buckets of these tables, by bucket.
        jobs: the functions and their partitions.
    """
    from streaming_source.mirroring.batch.table_rows import packed_batch
    from streaming_source.sinks.storage import use_storage

    for bucket, options in storage.items():
        use_storage(bucket, options)
    for task, parts in jobs:
        yield task([packed_batch(parts)])


def _reason(folder: str, write: Callable[[], None]) -> str | None:
    """Return why a table could not be written; None if it was."""
    from replica.errors import ConfigError
    from streaming_source.mirroring.writers.native.data_files import NativeWriteError
    from streaming_source.mirroring.writers.native.delta_rows import plain, reason_of
    from streaming_source.mirroring.writers.native.writer import check_worker
    from streaming_source.sinks.storage import bucket_of

    try:
        check_worker()
        write()
    except (ConfigError, NativeWriteError) as refused:
        return str(refused)
    except Exception as error:  # noqa: BLE001  (any error concerns only this table)
        if bucket_of(folder) is not None:  # the text may have credentials
            return reason_of(f"{type(error).__name__}: {plain(error)}", folder)
        _log.debug("a task could not write %s", folder, exc_info=True)
        return f"{type(error).__name__}: {error}"
    return None
