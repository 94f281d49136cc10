"""Spark's reader of a batch read over files: partitions from the survey of the files, and rows in the tasks.

Spark pickles the reader into every task. The pickle carries no partitions, because Spark passes each task its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_source.driver.same_version import OfThisVersion
from streaming_source.driver.spark_border import spark_border
from streaming_source.files.partition import FilePartition, read_file_changes
from streaming_source.selection.pushed_filters import push_filters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter
# Spark pushes conditions only with spark.sql.python.filterPushdown.enabled=true. Without that setting it refuses every
# reader that overrides the method. These readers are correct in both cases, so they must not appear to override it:
# the callable here presents itself as Spark's own method. A reader is a `FilteredReader` with `pushFilters =
# PushFilters()`.
#
# Spark (4.2.1) keeps the plan of a reader, with its conditions, in the loaded DataFrame. Other queries over that
# DataFrame, and the other sides of a UNION, get the same plan and would lack rows. So a reader accepts no condition
# unless the option pushFilters says that the DataFrame is used once.


class FilteredReader(Protocol):
    """Reader whose plan accepts a filter. After that, the reader plans and reads only rows that pass the filter."""

    @property
    def plan(self) -> ReadPlan: ...

    def take_filter(self, pushed: ChangeFilter) -> None: ...


class _Pushing:
    """Bound method `pushFilters` of one reader."""

    def __init__(self, reader: FilteredReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters  # Spark looks here to see whether the method is overridden

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        plan = self._reader.plan
        if not plan.tables.push_filters:
            return filters
        pushed, left = push_filters(filters, flat=plan.shape == "flat", ddl=plan.tables.include_ddl)
        if pushed is not None:
            self._reader.take_filter(pushed)
        return left


class PushFilters:
    """Attribute `pushFilters` of a reader's class."""

    def __get__(self, reader: Any, owner: type | None = None) -> _Pushing:
        return _Pushing(reader)


class BinlogFilesReader(OfThisVersion, DataSourceReader):
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
