"""Spark application of the proof: the same tables are written to a plain append sink and to a table by MERGE.

    python -m tools.proofs.snapshot.app '{"events": FILE, "queries": [{"kind", "options", "checkpoint", "output"}…]}'

Kind `parquet` appends every row as it arrives. Kind `delta` merges every batch into one table with `upsert_into`. The
columns of this table are table, key and row as text, so that keys of all types fit in one table. `mutation` damages the
rows that the first query appends, and the harness has to find the damage. If a query ends, its end is written to the
events file, and the query is restarted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from streaming_source import started, upsert_into
from tools.proofs.job import session
from tools.proofs.soak.spark.running import keep_running

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH_NAME = "spark.databricks.delta.commitInfo.userMetadata"
TABLE_SCHEMA = "tbl STRING, k STRING, row STRING"
KEYS = ("k", "k2")
PLACE = ("domain_id", "server_id", "sequence_number", "ordinal")
CHOSEN = f"xxhash64(table, {', '.join(PLACE)}) % 499 = 7"
# Without it the append sink commits hundreds of tiny batches while MERGE still reads, and takes the cores from it.
APPEND_EVERY = "3 seconds"
MUTATIONS = ("drop", "double", "stale")


def appended(stream: DataFrame, mutation: str | None) -> DataFrame:
    """Rows as they come: identity, operation, table, images as JSON."""
    rows = stream.select(
        "op",
        "table",
        *(f.col(f"transaction.{name}").alias(name) for name in PLACE),
        f.to_json("before").alias("before"),
        f.to_json("after").alias("after"),
    )
    if mutation == "drop":
        return rows.where(f"NOT ({CHOSEN})")
    if mutation == "double":
        return rows.withColumn("copy", f.explode(f.expr(f"IF({CHOSEN}, array(1, 2), array(1))"))).drop("copy")
    if mutation == "stale":
        return rows.withColumn(
            "after", f.expr(f"IF({CHOSEN}, regexp_replace(after, '\"v\":[0-9]+', '\"v\":-1'), after)")
        )
    return rows


def _key(image: str) -> Column:
    """The JSON of each key column, one behind the other."""
    parts = (f.to_json(f.try_variant_get(f.col(image), f"$.{name}", "variant")) for name in KEYS)
    return f.concat_ws("|", *(f.coalesce(part, f.lit("")) for part in parts))


def _image(image: str) -> Column:
    text = f.struct(f.col("table").alias("tbl"), _key(image).alias("k"), f.to_json(image).alias("row"))
    return f.when(f.col(image).isNotNull(), text).alias(image)


def merging(output: str) -> Any:
    """The function for foreachBatch; a commit of the table names the batch it is of."""
    upsert = upsert_into(f"delta.`{output}`", ["tbl", "k"])

    def merge(batch: DataFrame, number: int) -> None:
        batch.sparkSession.conf.set(BATCH_NAME, str(number))
        upsert(batch.withColumns({name: _image(name) for name in ("before", "after")}), number)

    return merge


def _start(stream: DataFrame, query: dict[str, Any]) -> StreamingQuery:
    if query["kind"] == "delta":
        writer = stream.writeStream.foreachBatch(merging(query["output"]))
    else:
        writer = appended(stream, query.get("mutation")).writeStream.format("parquet").option("path", query["output"])
        writer = writer.trigger(processingTime=APPEND_EVERY)
    return started(writer.queryName(query["kind"]).option("checkpointLocation", query["checkpoint"]).start())


def main(settings_json: str) -> None:
    settings = json.loads(settings_json)
    spark = session()
    for query in settings["queries"]:
        if query["kind"] == "delta" and not list((Path(query["output"]) / "_delta_log").glob("*.json")):
            # CREATE TABLE takes the empty folder of its log, which is watched, for a table.
            spark.createDataFrame([], TABLE_SCHEMA).write.format("delta").mode("append").save(query["output"])
    wanted = [(query, _load(spark, query["options"])) for query in settings["queries"]]
    keep_running(settings, wanted, _start)


def _load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.readStream.format("mariadb-binlog").options(**options).load()


if __name__ == "__main__":
    main(*sys.argv[1:])
