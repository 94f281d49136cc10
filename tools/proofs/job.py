"""Spark application that the kill tests kill: it writes every change of `shop.*` as text to Parquet until it is
stopped.

    python -m tools.proofs.job '{"host": …}' CHECKPOINT OUTPUT

Identity and images are plain columns, so that the union of all batches can be checked without code of the project.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming_source import started


def session(cores: int = 2) -> SparkSession:
    """A local session as a user would make it, with the settings that docs/spark.md recommends."""
    spark = (
        SparkSession.builder.master(f"local[{cores},4]")
        .appName("mariadb-binlog-system-test")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def changes(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    """A stream of row identities, and the images as JSON text."""
    stream = spark.readStream.format("mariadb-binlog").options(**options).load()
    return stream.select(
        "op",
        "database",
        "table",
        f.col("transaction.domain_id").alias("domain_id"),
        f.col("transaction.server_id").alias("server_id"),
        f.col("transaction.sequence_number").alias("sequence_number"),
        f.col("transaction.ordinal").alias("ordinal"),
        f.to_json("before").alias("before"),
        f.to_json("after").alias("after"),
    )


def main(options_json: str, checkpoint: str, output: str) -> None:
    rows = changes(session(), json.loads(options_json))
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", output)
    started(writer.trigger(processingTime="0 seconds")).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
