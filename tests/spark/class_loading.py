"""What an archive of Spark's classes is made from: a batch, a join and streams, so that a JVM loads what tests need.

Run by tests/fixtures/class_archive.py with a folder for its files, in a JVM that writes the archive at its end.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from tests.spark.conftest import CONFIGURATION


def load_classes(folder: str) -> None:
    """Run it in a session of its own, and wait until the JVM has ended."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in CONFIGURATION.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    numbers = spark.range(1000).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS t", "TIMESTAMP_MICROS(id) AS at")
    numbers.write.parquet(f"{folder}/numbers")
    found = spark.read.parquet(f"{folder}/numbers")
    found.join(numbers.groupBy("k").count(), "k").orderBy("id").toArrow()
    stream = spark.readStream.schema(found.schema).parquet(f"{folder}/numbers")
    through_python = stream.mapInArrow(lambda batches: batches, stream.schema).writeStream
    by_rows = stream.writeStream.foreachBatch(lambda batch, _: batch.collect())
    for writer in (
        through_python.format("noop"),
        through_python.format("parquet").option("path", f"{folder}/copy"),
        by_rows,
    ):
        checkpoint = f"{folder}/checkpoint of {id(writer)}"
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()  # at its end the JVM ends too
    jvm.wait()


if __name__ == "__main__":
    load_classes(sys.argv[1])
