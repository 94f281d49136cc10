"""Files on any storage that Spark reaches, through Hadoop's API, because PySpark has no API for files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a path as Java's `Path`, and the `FileSystem` that it is in, with the settings of the session."""
    place = spark._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001
    return place, place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001


def hadoop_text(spark: SparkSession, path: str) -> str | None:
    """Return the text of a UTF-8 file; None if it does not exist."""
    place, files = hadoop_path(spark, path)
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        return str(spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))  # noqa: SLF001
    finally:
        stream.close()
