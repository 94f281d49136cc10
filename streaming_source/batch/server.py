"""Batch reads of a server's binlog, or of a daemon's relay log: the rows of (startingPosition, endingPosition].

In: the options and the plan; where the reading ends if that was `latest`, as it was at load(). Out: Spark's reader
object. Spark asks it once a DataFrame for its partitions, when that is first used: then the range is fetched into a
folder of its own (batch_folders.py) by a replica that ends with it, and planned like a micro-batch of a stream, so that
rows and shapes are those of a stream. A daemon's log is planned where it is.

Refused: an end that lies before the start or is not reached yet, a range larger than relayMaxBytes, and what a stream
refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from streaming_source.batch.pushdown import PushFilters
from streaming_source.driver.spark_border import spark_border
from streaming_source.rows.partition import ChangePartition
from streaming_source.rows.reader import read_changes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from replica.handshake.end import ServerEnd
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter


class ServerRangeReader(DataSourceReader):
    """Spark's reader of a range. `options` is None in tasks. `latest` is the end of the binlog at load(), `load` tells
    one load() from another.
    """

    pushFilters = PushFilters()  # noqa: N815  (Spark's name)

    def __init__(self, options: SourceOptions, plan: ReadPlan, latest: ServerEnd, load: str) -> None:
        self._options: SourceOptions | None = options
        self._plan = plan
        self._latest = latest
        self._load = load
        self._folder: Path | None = None

    @property
    def plan(self) -> ReadPlan:
        return self._plan

    def take_filter(self, pushed: ChangeFilter) -> None:
        """Let tasks leave out what the filter leaves out."""
        self._plan = self._plan.filtered(pushed)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": None, "_plan": self._plan, "_latest": self._latest, "_load": "", "_folder": self._folder}

    def __repr__(self) -> str:
        return f"ServerRangeReader({self._plan.title})"

    @spark_border()
    def partitions(self) -> list[InputPartition]:
        if self._options is None:
            raise RuntimeError("only the process that plans the query may ask for partitions")
        from streaming_source.batch.planning import plan_range

        planned = plan_range(self._options, self._plan, self._latest, self._load)
        self._folder = planned.folder
        return list(planned.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any partition Spark makes up one that holds nothing.
        if isinstance(partition, ChangePartition):
            if self._folder is not None:
                from streaming_source.batch.folders import touch

                touch(self._folder)
            with spark_border():
                yield from read_changes(partition, self._plan)
