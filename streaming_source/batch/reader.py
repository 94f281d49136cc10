"""Spark's reader of a batch read over files: partitions from the survey of the files, and rows in the tasks.

Spark pickles the reader into every task. The pickle carries no partitions, because Spark passes each task its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_source.batch.pushdown import PushFilters
from streaming_source.driver.spark_border import spark_border
from streaming_source.files.partition import FilePartition
from streaming_source.files.reader import read_file_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter


class BinlogFilesReader(DataSourceReader):
    pushFilters = PushFilters()  # noqa: N815  (Spark's name)

    def __init__(self, partitions: Sequence[FilePartition], plan: ReadPlan) -> None:
        self._partitions = list(partitions)
        self._plan = plan

    @property
    def plan(self) -> ReadPlan:
        return self._plan

    def take_filter(self, pushed: ChangeFilter) -> None:
        """Drop stretches in which no row can pass the filter. Tasks drop the remaining rows."""
        left = (partition.filtered(pushed) for partition in self._partitions)
        self._partitions = [partition for partition in left if partition.stretches]
        self._plan = self._plan.filtered(pushed)

    def __getstate__(self) -> dict[str, Any]:
        return {"_partitions": [], "_plan": self._plan}

    def __repr__(self) -> str:
        return f"BinlogFilesReader({self._plan.title})"

    def partitions(self) -> list[InputPartition]:
        return list(self._partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes up an empty partition if there is none.
        if isinstance(partition, FilePartition):
            with spark_border():
                yield from read_file_changes(partition, self._plan)
