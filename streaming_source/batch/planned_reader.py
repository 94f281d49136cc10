"""The base of Spark's readers whose rows wait in a folder of ours.

In: what plans them, in the process that plans the query. Out: partitions, once; and in tasks the rows of each. The
folder is told that it is read, which keeps it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_source.driver.spark_border import spark_border
from streaming_source.rows.partition import ChangePartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from streaming_source.batch.planning import PlannedRange
    from streaming_source.options.source_options import SourceOptions


class PlannedReader(DataSourceReader):
    """A reader of what is planned into a folder. `options` is None in tasks; `load` tells one load() from another."""

    def __init__(self, options: SourceOptions, load: str) -> None:
        self._options: SourceOptions | None = options
        self._load = load
        self._folder: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": None, "_load": ""}

    @abstractmethod
    def planned(self, options: SourceOptions, load: str) -> PlannedRange:
        """Plan the rows, and fetch what they are made of."""
        ...

    @abstractmethod
    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in a task."""
        ...

    @spark_border()
    def partitions(self) -> list[InputPartition]:
        if self._options is None:
            raise RuntimeError("only the process that plans the query may ask for partitions")
        planned = self.planned(self._options, self._load)
        self._folder = planned.folder
        return list(planned.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any partition Spark makes up one that holds nothing.
        if isinstance(partition, ChangePartition):
            if self._folder is not None:
                from streaming_source.batch.folders import touch

                touch(self._folder)
            with spark_border():
                yield from self.rows(partition)
