"""Check of a query's checkpoint in a bucket before Spark uses it, so that its faults are errors with a remedy.

Spark's own errors name neither the bucket nor what to do. A query whose checkpoint exists but cannot be written even
starts, and ends with its next micro-batch. `check_checkpoint` writes and deletes one object in the checkpoint.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from streaming_source.driver.hadoop_files import hadoop_path
from streaming_source.sinks.storage import bucket_of
from streaming_source.sinks.storage_faults import bucket_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

_OPTION: Final = "checkpointLocation"
_OF_SESSION: Final = "spark.sql.streaming.checkpointLocation"


def check_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """Check that a checkpoint in a bucket can be written. Other storage is not checked.

    Raises:
        StorageError: the bucket refuses the request, does not exist or does not answer.
    """
    if bucket_of(checkpoint) is None:
        return
    try:
        place, files = hadoop_path(spark, f"{checkpoint.rstrip('/')}/_written_{uuid.uuid4().hex}")
        files.create(place).close()
        files.delete(place, False)
    except Py4JJavaError as error:
        typed = bucket_fault(error, f"the checkpoint {checkpoint}", spark)
        if typed is None:  # Spark may be able to do what this check cannot, and has an error of its own
            return
        raise typed from None


def check_writer(writer: DataStreamWriter) -> None:
    """Check the checkpoint of a configured `writeStream`.

    Raises:
        StorageError: as `check_checkpoint` raises it.
    """
    spark: SparkSession | None = getattr(writer, "_spark", None)
    if spark is None or getattr(spark, "_jvm", None) is None:  # a session of Spark Connect has no JVM here
        return
    checkpoint = _checkpoint_of(writer) or spark.conf.get(_OF_SESSION, None)
    if checkpoint:
        check_checkpoint(spark, checkpoint)


def _checkpoint_of(writer: DataStreamWriter) -> str | None:
    """Return the option of a writer; None if it is not set, or if Spark's class has another field for options."""
    with contextlib.suppress(Py4JError):
        java: Any = writer._jwrite  # noqa: SLF001  (a writer has no API that returns its options)
        field = java.getClass().getDeclaredField("extraOptions")
        field.setAccessible(True)
        found = field.get(java).get(_OPTION)
        return str(found.get()) if found.isDefined() else None
    return None
