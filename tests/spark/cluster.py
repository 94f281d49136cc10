"""A Spark application on a cluster of two executors that do not see the driver's files, and of which one is killed.

python cluster.py '{"host": …}' DATABASE FOLDER   prints one JSON object: what came, and what the executors saw

Cluster: local-cluster[2,1,1024], two executor JVMs with folders of their own. The relay log is named by a path that
leads somewhere else in every process (/proc/self/cwd), so that only the driver's processes find it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.spark.conftest import CONFIGURATION, ROOT

RELAY = "/proc/self/cwd/relay"
PATIENCE_S = 60.0
MANY = 4
"""Partitions of the batch with the large transaction, which lasts long enough to be disturbed."""


def session() -> SparkSession:
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.executor.memory", "1g")
    for key, value in CONFIGURATION.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.executor.extraJavaOptions", CONFIGURATION["spark.driver.extraJavaOptions"])
    spark = builder.config("spark.executorEnv.PYTHONPATH", str(ROOT)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def executors() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process)
    return found


def kill_one_of_each(killed: list[str]) -> None:
    """A worker of one executor in the middle of its task, then the other executor itself."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for executor in executors():
            with contextlib.suppress(psutil.NoSuchProcess):
                workers = [p for daemon in executor.children() for p in daemon.children()]
                if workers:
                    time.sleep(0.3)
                    workers[0].send_signal(signal.SIGKILL)
                    other = next(e for e in executors() if e.pid != executor.pid)
                    time.sleep(0.3)
                    other.send_signal(signal.SIGKILL)
                    killed += ["worker", "executor"]
                    return
        time.sleep(0.05)


class Totals:
    """What the batches of a query held, by batch: one that Spark repeats replaces its own."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[str, Any]] = {}
        self.killed: list[str] = []
        self.kill = False

    def take(self, batch: DataFrame, number: int) -> None:
        killer = threading.Thread(target=kill_one_of_each, args=(self.killed,))
        kill = self.kill and not self.killed and batch.rdd.getNumPartitions() > MANY
        if kill:
            killer.start()
        # Slow enough for the killer: the socket holds the reader back.
        turns = 200 if kill else 1
        slow = batch.withColumn("slow", f.expr(f"reduce(sequence(1, {turns}), 0, (a, x) -> a + x)"))
        slow = slow.withColumn("task", f.spark_partition_id())
        row = slow.select(
            f.count("slow").alias("rows"),
            f.countDistinct("gtid", "ordinal").alias("identities"),
            f.coalesce(f.sum("id"), f.lit(0)).alias("ids"),
            f.sum(f.col("is_last").cast("int")).alias("transactions"),
            f.countDistinct("task").alias("partitions"),
        ).first()
        if kill:
            killer.join()
        if row is not None:
            self.batches[number] = row.asDict()


def main(server: str, database: str, folder: str) -> None:
    spark = session()

    def stream(relay: str, **tables: str) -> DataFrame:
        options = {**json.loads(server), "relayDir": relay, **tables}
        return spark.readStream.format("mariadb-binlog").options(**options).load()

    identity = ["transaction.gtid", "transaction.ordinal", "transaction.is_last"]
    shapes = {
        "variant": stream(RELAY, tables=f"{database}.*").select(
            *identity, f.variant_get("after", "$.id", "long").alias("id")
        ),
        "typed": stream(f"{RELAY}-typed", table=f"{database}.orders").select(*identity, f.col("after.id").alias("id")),
    }
    result: dict[str, Any] = {}
    for name, changes in shapes.items():
        totals = Totals()
        totals.kill = name == "variant"
        query = (
            changes.writeStream.foreachBatch(totals.take)
            .option("checkpointLocation", f"{folder}/{name}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        result[name] = {"batches": totals.batches, "killed": totals.killed}
    seen = spark.sparkContext.parallelize(range(2), 2).map(lambda _: (os.getcwd(), os.path.exists(RELAY))).collect()  # noqa: PTH109, PTH110
    result["executors"] = seen
    result["driver"] = [str(Path.cwd()), Path(RELAY).exists()]
    spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
