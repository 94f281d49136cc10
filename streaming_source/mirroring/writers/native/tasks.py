"""Functions of tasks that write one table: its part of a batch becomes a commit, or files for the driver to commit.

In: the partitions of a batch that have rows of the table. Out: a `TaskOutcome`. An error of one table ends no task:
Spark then writes that table, meets the same error, and reports it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from streaming_source.mirroring.batch.batch_facts import PackedPart
    from streaming_source.mirroring.batch.latest_rows import LatestOfTable
    from streaming_source.mirroring.writers.native.data_files import DataFile
    from streaming_source.mirroring.writers.native.delta_rows import TargetShape
    from streaming_source.mirroring.writers.native.merge.partial_images import OmittedColumns
    from streaming_source.mirroring.writers.native.table_files import TableFile
    from streaming_source.mirroring.writers.versions import Commit

Rows = Literal["new", "first", "inserted", "counted"]
"""The rows of a batch that are appended: those that were read, in append_log all; or with what changes made of them."""
_log = logging.getLogger(__name__)


class TaskOutcome(NamedTuple):
    """Report of a task: the number that it was given, and why it wrote nothing; or the files that it wrote for the
    driver to commit, and those of the table in whose place they come.
    """

    number: int
    reason: str | None = None
    files: tuple[DataFile, ...] = ()
    replaced: tuple[TableFile, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangesTask:
    """The function of the one task that merges the changes of a table.

    `number` tells functions of one job apart. `left_out`: what is known of columns that images lack, if some do. Then
    rows that were read are merged, too.
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
class RowsTask:
    """The function of tasks that write new rows of a table as files.

    `schema`: the table's, as delta-rs reports it. `rows`: which rows. `first` is the first state of a new table, which
    rows that were read and changes make together, in one task; `inserted` is for a table without a key.
    """

    number: int
    folder: str
    latest: LatestOfTable
    target: TargetShape
    schema: pa.Schema
    rows: Rows = "new"

    @property
    def with_changes(self) -> bool:
        """Whether the files have what the changes of the batch leave, too."""
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
class CountedTask:
    """The function of the one task that counts the rows of a table without a key, and writes files for the driver to
    commit. `left_out`: what is known of columns that images lack, if some do.
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


def run(jobs: Iterable[tuple[Task, Sequence[PackedPart]]]) -> Iterator[TaskOutcome]:
    """Call functions, each with the partitions that have rows of its table."""
    from streaming_source.mirroring.batch.table_rows import packed_batch

    for task, parts in jobs:
        yield task([packed_batch(parts)])


def _reason(folder: str, write: Callable[[], None]) -> str | None:
    """Return why a table could not be written; None if it was."""
    from replica.errors import ConfigError
    from streaming_source.mirroring.writers.native.data_files import NativeWriteError
    from streaming_source.mirroring.writers.native.installed import check_worker

    try:
        check_worker()
        write()
    except (ConfigError, NativeWriteError) as refused:
        return str(refused)
    except Exception as error:  # noqa: BLE001  (whatever it is: of this table alone)
        _log.debug("a task could not write %s", folder, exc_info=True)
        return f"{type(error).__name__}: {error}"
    return None
