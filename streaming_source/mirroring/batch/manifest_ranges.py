"""Reader of a range of the binlog whose tasks make manifests.

It has a file of its own because it needs the server's login. A task of a stream needs no login, and starts a third of a
second earlier without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.batch.manifest import NumberedPartition, numbered
from streaming_source.source.batch.server import ServerRangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from streaming_source.rows.partition import ChangePartition


class ManifestRangeReader(ServerRangeReader):
    """Spark's reader of a range."""

    def partitions(self) -> list[InputPartition]:
        return numbered(super().partitions())

    def rows(self, partition: ChangePartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, NumberedPartition)  # noqa: S101  (`partitions` makes only these)
        return partition.manifest(self._plan)
