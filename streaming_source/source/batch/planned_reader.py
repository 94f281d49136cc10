"""Base class of Spark's readers whose rows are in a private folder.

`PlannedReader` returns its partitions, once, in the process that plans the query, and in tasks the rows of each
partition. It touches the folder at each read, which keeps the folder from being removed.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_source.driver.same_version import OfThisVersion
from streaming_source.driver.spark_border import spark_border
from streaming_source.rows.partition import ChangePartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from streaming_source.options.source_options import SourceOptions
    from streaming_source.source.batch.planning import PlannedRange


class PlannedReader(OfThisVersion, DataSourceReader):
    """Reader of rows that are planned into a folder.

    Attributes:
        options: the options of the read; None in tasks.
        load: text that identifies one load().
    """

    def __init__(self, options: SourceOptions, load: str) -> None:
        self._options: SourceOptions | None = options
        self._load = load
        self._folder: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": None, "_load": ""}

    @abstractmethod
    def planned(self, options: SourceOptions, load: str) -> PlannedRange:
        """Plan the rows, and fetch the data for them."""
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
        # Spark makes up an empty partition if there is none.
        if isinstance(partition, ChangePartition):
            if self._folder is not None:
                from streaming_source.source.batch.folders import touch

                touch(self._folder)
            with spark_border():
                yield from self.rows(partition)
