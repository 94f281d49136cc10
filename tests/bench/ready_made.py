"""The yardstick of `scripts/bench spark`: a streaming source whose batches are made before Spark asks for them.

In: an Arrow IPC file with one RecordBatch of the shape to compare with. Out: that batch, over and over, as many times
a partition, partitions a micro-batch and micro-batches as asked for. The process layout, the planning calls and the
schema are those of the real source; what is missing is the relay log, the scan and the decoding."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "ready-made-batches"


class ReadyMadeSource(DataSource):
    """Options: file, schema (Spark JSON), batches a partition, partitions a micro-batch, triggers (micro-batches)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["schema"]))

    def streamReader(self, schema: StructType) -> ReadyMadeReader:  # noqa: ARG002, N802  (Spark's names)
        return ReadyMadeReader(dict(self.options))


class ReadyMadeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._file = options["file"]
        self._batches, self._partitions, self._triggers = (
            int(options[name]) for name in ("batches", "partitions", "triggers")
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(1)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"trigger": -1}

    def latestOffset(self, start: dict[str, Any], _limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"trigger": min(start["trigger"] + 1, self._triggers)}

    def partitions(self, _start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        # Trigger 0 is empty, as the anchor batch of the real source is.
        return [InputPartition(n) for n in range(self._partitions)] if end["trigger"] > 0 else []

    def read(self, _partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self._file) as source:
            batch = pa.ipc.open_stream(source).read_next_batch()
            for _ in range(self._batches):
                yield batch


def write_batch(batch: pa.RecordBatch, path: Path) -> None:
    with pa.ipc.new_stream(path, batch.schema) as writer:
        writer.write_batch(batch)
