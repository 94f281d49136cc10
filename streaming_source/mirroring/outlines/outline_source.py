"""The data source of a mirror: the stream of `mariadb-binlog`, of which each micro-batch comes as its outline.

The same options, offsets, checkpoints and errors; only what tasks yield is another thing. A mirror registers it in its
session by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from streaming_source.driver.spark_border import spark_border
from streaming_source.mirroring.outlines.outline_columns import outline_schema
from streaming_source.source import MariaDbBinlogSource
from streaming_source.stream import ChangeStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan


@dataclass(frozen=True)
class NumberedPartition(InputPartition):
    """A partition, and its place among those of its micro-batch, which are in the order of the stream."""

    number: int
    partition: ChangePartition


class OutlineStreamReader(ChangeStreamReader):
    """The stream's reader, of which tasks make outlines."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [NumberedPartition(number, part) for number, part in enumerate(super().partitions(start, end))]

    def read(self, partition: NumberedPartition) -> Iterator[pa.RecordBatch]:
        from streaming_source.mirroring.outlines.outline_reader import read_outline

        with spark_border():
            yield from read_outline(partition.partition, self._plan, partition.number)


class OutlineSource(MariaDbBinlogSource):
    """Be the data source `mariadb-binlog-outline`, for `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        return "mariadb-binlog-outline"

    def schema(self) -> StructType:
        super().schema()
        return outline_schema()

    def _stream_of(self, options: SourceOptions, plan: ReadPlan, schema: StructType) -> ChangeStreamReader:  # noqa: ARG002  (it is always the same)
        return OutlineStreamReader(options, plan)
