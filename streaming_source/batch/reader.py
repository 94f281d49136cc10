"""Spark's reader object of a batch read: partitions made when the files were looked through, rows made by tasks.

Spark pickles it into every task; the partitions, which Spark hands out one by one, stay behind.
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
        """Leave out stretches that cannot hold what the filter leaves; tasks leave out the rest."""
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
        # Without any partition Spark makes up one that holds nothing.
        if isinstance(partition, FilePartition):
            with spark_border():
                yield from read_file_changes(partition, self._plan)
