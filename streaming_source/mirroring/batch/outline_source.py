"""Data source of a mirror: the stream `mariadb-binlog`, with the outlines of each micro-batch instead of its rows.

It also has batch reads of a range of the binlog, as outlines. Options, offsets, checkpoints and errors are those of
`mariadb-binlog`. `mirror()` registers the source in its session.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streaming_source.batch.server import ServerRangeReader
from streaming_source.driver.spark_border import spark_border
from streaming_source.mirroring.batch.outline_columns import outline_schema
from streaming_source.rows.partition import ChangePartition
from streaming_source.source import MariaDbBinlogSource
from streaming_source.stream import ChangeStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from replica.handshake.start.end import ServerEnd
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan


@dataclass(frozen=True)
class NumberedPartition(ChangePartition):
    """Partition with its place in the micro-batch; the partitions have the order of the stream."""

    number: int

    def outline(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        """Yield the outline of the partition."""
        from streaming_source.mirroring.batch.outline_reader import read_outline

        return read_outline(ChangePartition(self.ranges), plan, self.number)


class OutlineStreamReader(ChangeStreamReader):
    """Stream reader whose tasks make outlines."""

    ends_before_statements = True

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return numbered(super().partitions(start, end))

    def read(self, partition: NumberedPartition) -> Iterator[pa.RecordBatch]:
        with spark_border():
            yield from partition.outline(self._plan)


class OutlineRangeReader(ServerRangeReader):
    """Reader of a range of the binlog whose tasks make outlines."""

    def partitions(self) -> list[InputPartition]:
        return numbered(super().partitions())

    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, NumberedPartition)  # noqa: S101  (`partitions` makes only these)
        return partition.outline(self._plan)


class OutlineSource(MariaDbBinlogSource):
    """Data source `mariadb-binlog-outline`, for `spark.dataSource.register`."""

    @classmethod
    def name(cls) -> str:
        return "mariadb-binlog-outline"

    def schema(self) -> StructType:
        super().schema()
        return outline_schema()

    def _stream_of(self, options: SourceOptions, plan: ReadPlan, schema: StructType) -> ChangeStreamReader:  # noqa: ARG002
        return OutlineStreamReader(options, plan)

    def _range_of(
        self,
        options: SourceOptions,
        plan: ReadPlan,
        schema: StructType,  # noqa: ARG002  (outlines have one schema)
        latest: ServerEnd,
    ) -> ServerRangeReader:
        return OutlineRangeReader(options, plan, latest, self._load or uuid.uuid4().hex)


def numbered(partitions: Iterable[InputPartition]) -> list[InputPartition]:
    """Return the partitions of changes with their numbers."""
    changes = (part for part in partitions if isinstance(part, ChangePartition))
    return [NumberedPartition(part.ranges, number) for number, part in enumerate(changes)]
