"""The end of a micro-batch of the mirror, and when it was planned, as the checkpoint says it.

In: the checkpoint, the number of the batch. Out: the offset that Spark logged before the batch ran. The driver reads
the file itself: a job of Spark's for it costs a tenth of a second in each micro-batch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.errors import ConfigError
from streaming_source.offsets.offset import SourceOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HINT = "Start the mirror again, with the checkpoint as it was."


class LoggedEnd(NamedTuple):
    """The end of a batch. `planned_ms`: when Spark planned it, in ms since 1970."""

    offset: SourceOffset
    planned_ms: int


def logged_end(spark: SparkSession, checkpoint: str, number: int) -> LoggedEnd | None:
    """Return where a batch ends; None where Spark has not logged it, or has removed that."""
    written = hadoop_text(spark, f"{checkpoint}/offsets/{number}")
    if written is None:
        return None
    lines = written.splitlines()
    return LoggedEnd(SourceOffset.parse(json.loads(lines[-1])), int(json.loads(lines[1])["batchTimestampMs"]))


def end_of(spark: SparkSession, checkpoint: str, number: int) -> SourceOffset:
    """Return where the batch that runs ends.

    Raises:
        ConfigError: Spark's log does not have it.
    """
    found = logged_end(spark, checkpoint, number)
    if found is None:
        path = f"{checkpoint}/offsets/{number}"
        raise ConfigError(f"{path} is not there: the checkpoint was changed while its mirror runs.", hint=_HINT)
    return found.offset


def hadoop_text(spark: SparkSession, path: str) -> str | None:
    """Return the text of a file of UTF-8."""
    jvm: Any = spark._jvm  # noqa: SLF001  (PySpark has no other door to Hadoop's files)
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
