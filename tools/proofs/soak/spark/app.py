"""Spark application that the soak kills: one query for each sink, prepared first, and started by a line on stdin.

    python -m tools.proofs.soak.spark.app '{"events": FILE, "queries": [{"kind", "options", "checkpoint", "output"}…]}'

Every row change becomes identity, operation, table, key, and both images as JSON text (or the MD5 of a long text), so
that the sinks can be checked without code of the project. If a query ends, its end is written to the events file, and
the query is restarted, as a supervisor would do. The soak judges whether the query had a reason to end.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from streaming_source import started
from tools.proofs.job import session
from tools.proofs.soak.spark.running import keep_running

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

LONG_TEXT = 4096


def _text(image: str) -> Column:
    json_text = f.to_json(image)
    digest = f.concat(f.lit('{"md5":"'), f.md5(json_text.cast("binary")), f.lit('"}'))
    return f.when(f.length(json_text) > LONG_TEXT, digest).otherwise(json_text).alias(image)


def _key() -> Column:
    """Every table of the load has a whole number for a key, under one of two names."""
    paths = [(f.col(image), f"$.{name}") for name in ("id", "number") for image in ("after", "before")]
    return f.coalesce(*(f.try_variant_get(image, path, "bigint") for image, path in paths))


def changes(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    transaction = ("domain_id", "server_id", "sequence_number", "ordinal", "is_last")
    return (
        spark.readStream.format("mariadb-binlog")
        .options(**options)
        .load()
        .select(
            *(f.col(f"transaction.{name}").alias(name) for name in transaction),
            "op",
            "table",
            _key().alias("key"),
            _text("before"),
            _text("after"),
        )
    )


def _start(rows: DataFrame, query: dict[str, Any]) -> StreamingQuery:
    return started(
        rows.writeStream.format(query["kind"])
        .queryName(query["kind"])
        .option("checkpointLocation", query["checkpoint"])
        .option("path", query["output"])
        .start()
    )


def main(settings_json: str) -> None:
    settings = json.loads(settings_json)
    spark = session()
    wanted = [(query, changes(spark, query["options"])) for query in settings["queries"]]
    keep_running(settings, wanted, _start)


if __name__ == "__main__":
    main(*sys.argv[1:])
