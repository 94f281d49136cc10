"""The changes of a stretch of the binlog that the mirror has been over, once more, as the outline of a micro-batch.

In: two positions of the mirror. Out: the outline of all changes between, whose rows tasks read as those of a batch; the
server's binlog is read for it, into a folder of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.batch.outline_source import OutlineSource
from streaming_source.mirroring.settings import batch_options
from streaming_source.options.source_options import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.mirroring.settings import MirrorSettings

_OF_ROWS: Final = {option.name.lower() for option in OPTIONS if option.scope == "rows"}
"""Options that say which rows there are, and what they look like: those of the mirror's stream."""


def past_changes(spark: SparkSession, settings: MirrorSettings, since: str, end: str) -> DataFrame:
    """Return the outline of the changes behind `since` and up to `end`.

    Raises:
        ReplicaError, PySparkException: the server cannot be asked, or does not have them any more.
    """
    of_rows = {name: value for name, value in settings.given.items() if name.lower() in _OF_ROWS}
    reader = spark.read.format(OutlineSource.name()).options(**batch_options(settings), **of_rows)
    return reader.options(startingPosition=since or "earliest", endingPosition=end).load()
