"""A small text file, wherever Spark keeps files, read by the driver without a job of Spark's.

In: a path as Spark takes it. Out: its text; None where there is no such file. A job of Spark's for it costs a tenth of
a second in each micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
