"""End and planning time of a micro-batch, from the checkpoint.

In: the checkpoint, the number of the micro-batch. Out: the offset that Spark logged before the micro-batch ran. The
driver reads the file itself, because a Spark job would cost a tenth of a second in each micro-batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ConfigError
from streaming_source.driver.hadoop_files import hadoop_text
from streaming_source.offsets.offset import SourceOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HINT = "Restore the checkpoint, and start the mirror again."


class LoggedEnd(NamedTuple):
    """End of a micro-batch; `planned_ms`: when Spark planned it, in milliseconds since 1970."""

    offset: SourceOffset
    planned_ms: int


def logged_end(spark: SparkSession, checkpoint: str, number: int) -> LoggedEnd | None:
    """Return the end of a micro-batch; None if Spark has not logged it yet, or has removed it."""
    written = hadoop_text(spark, f"{checkpoint}/offsets/{number}")
    if written is None:
        return None
    lines = written.splitlines()
    return LoggedEnd(SourceOffset.parse(json.loads(lines[-1])), int(json.loads(lines[1])["batchTimestampMs"]))


def end_of(spark: SparkSession, checkpoint: str, number: int) -> SourceOffset:
    """Return the end of the running micro-batch.

    Raises:
        ConfigError: the checkpoint does not have it.
    """
    found = logged_end(spark, checkpoint, number)
    if found is None:
        path = f"{checkpoint}/offsets/{number}"
        raise ConfigError(f"{path} does not exist: the checkpoint was changed while its mirror runs.", hint=_HINT)
    return found.offset
