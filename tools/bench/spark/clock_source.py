"""The floor of `scripts/bench latency`: a streaming source that has nothing to do, and rows at a steady rate.

Row n is due n / rate seconds after the moment `begin`; when Spark asks, those that are due are there. No relay log, no
server, no decoding: what is left is Spark's own micro-batch and the Python processes around it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

NAME = "steady-clock"
SCHEMA = "op STRING, after STRUCT<id: INT>"


def due_at(row: int, begin: float, rate: float) -> float:
    """Seconds since 1970."""
    return begin + row / rate


class ClockSource(DataSource):
    """Options: begin (seconds since 1970), rate (rows a second)."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> ClockReader:  # noqa: ARG002, N802  (Spark's names)
        return ClockReader(float(self.options["begin"]), float(self.options["rate"]))


class Rows(InputPartition):
    """Rows `first` up to `last`."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


class ClockReader(DataSourceStreamReader):
    def __init__(self, begin: float, rate: float) -> None:
        self._begin = begin
        self._rate = rate

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"row": 0}

    def latestOffset(self, start: dict[str, Any], _limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        due = int((time.time() - self._begin) * self._rate)
        return {"row": max(due, start["row"])}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [Rows(start["row"], end["row"])] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows), "Spark gives back what was planned"
        ids = pa.array(np.arange(partition.first, partition.last, dtype=np.int32))
        after = pa.StructArray.from_arrays([ids], names=["id"])
        yield pa.RecordBatch.from_arrays([pa.repeat("insert", len(ids)), after], names=["op", "after"])
