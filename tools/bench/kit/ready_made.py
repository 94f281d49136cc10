"""The yardstick of `scripts/bench spark`: a source whose batches are made before Spark asks for them.

In: a folder of Arrow files, one a partition, with the very RecordBatches that the real source hands out for the
partitions of one micro-batch. Out: of each partition its largest batch, cut to the rows of one after the other, from
the memory of the process, in as many micro-batches as asked for. So nothing is read, and what Spark takes lies in the
processor's cache, as a batch that was just decoded does. The process layout, the planning calls, the schema and the
number of rows of the batches are those of the real source, and so is the care for the garbage collector; what is
missing is the relay log, the scan and the decoding.
"""

from __future__ import annotations

import gc
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME = "ready-made-batches"


class ReadyMadeSource(DataSource):
    """Options: folder, schema (Spark JSON), partitions (files to read a micro-batch), triggers (micro-batches); of a
    batch read `batch_partitions` instead of these, for which the files are read in turn.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["schema"]))

    def reader(self, schema: StructType) -> ReadyMadeBatch:  # noqa: ARG002  (Spark's name)
        return ReadyMadeBatch(dict(self.options))

    def streamReader(self, schema: StructType) -> ReadyMadeReader:  # noqa: ARG002, N802  (Spark's names)
        return ReadyMadeReader(dict(self.options))


class ReadyMadeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: dict[str, str]) -> None:
        self._folder = options["folder"]
        self._partitions, self._triggers = int(options["partitions"]), int(options["triggers"])

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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._folder, partition.value)


class ReadyMadeBatch(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._folder = options["folder"]
        self._files, self._partitions = int(options["partitions"]), int(options["batch_partitions"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n % self._files) for n in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._folder, partition.value)


def _read(folder: str, number: int) -> Iterator[pa.RecordBatch]:
    _exempt_imports_from_collection()
    batch, sizes = _held(folder, number)
    for rows in sizes:
        yield batch.slice(0, rows)


@cache
def _exempt_imports_from_collection() -> None:
    """Spark's worker collects garbage after every task: that would cost this source more than its rows do."""
    gc.collect()
    gc.freeze()


@cache
def _held(folder: str, partition: int) -> tuple[pa.RecordBatch, list[int]]:
    """Return a partition's largest batch, and the rows of all of them; read once a process."""
    batches = list(pa.ipc.open_stream(_file(Path(folder), partition).read_bytes()))
    largest = max(batches, key=lambda batch: batch.num_rows)
    memory = pa.BufferOutputStream()
    with pa.ipc.new_stream(memory, largest.schema) as writer:
        writer.write_batch(largest)
    # Of its own memory, so that the other batches are let go.
    return pa.ipc.open_stream(memory.getvalue()).read_next_batch(), [batch.num_rows for batch in batches]


def write_partition(batches: Iterable[pa.RecordBatch], folder: Path, number: int) -> int:
    """Keep the batches of one partition, and return their rows. They may overwrite each other once they are written."""
    writer, rows = None, 0
    for batch in batches:
        rows += batch.num_rows
        writer = writer or pa.ipc.new_stream(_file(folder, number), batch.schema)
        writer.write_batch(batch)
    if writer is None:
        raise SystemExit("a partition of the workload has no rows")
    writer.close()
    return rows


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.arrow"
