"""A Spark application (local[2,4]: tasks are tried four times) that kills its own Python workers while they read.

python killed_worker.py PORT TABLE POSITION FOLDER   prints: failed task attempts, rows, distinct identities
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import psutil
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import CONFIGURATION


def _workers() -> list[int]:
    """Forked workers of this application: children of its daemon, not the daemon and not the planners."""
    found = []
    for daemon in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "pyspark.daemon pyspark.worker" in " ".join(daemon.cmdline()) and "java" in daemon.parent().name():
                found += [worker.pid for worker in daemon.children()]
    return found


def failed_tasks(spark: SparkSession, job_group: str) -> int:
    """Attempts of a query's tasks that failed; the query went on, or it would have ended with an error."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(job_group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage)


def main(port: str, table: str, position: str, folder: str) -> None:
    builder = SparkSession.builder.master("local[2,4]")
    for key, value in CONFIGURATION.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    options = {
        "host": "127.0.0.1",
        "port": port,
        "user": "repl",
        "password": "replica-secret",
        "table": table,
        "startingPosition": position,
        "relayDir": f"{folder}/killed-relay",
    }
    changes = spark.readStream.format("mariadb-binlog").options(**options).load()
    results: list[tuple[int, int]] = []

    def kill_twice(done: threading.Event) -> None:
        """Two of the four attempts a task has, each a moment after its worker appeared."""
        kills = 0
        while kills < 2 and not done.is_set():
            workers = _workers()
            time.sleep(0.3)
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            kills += bool(workers)

    def count(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 0:  # the empty anchor
            return
        done = threading.Event()
        killer = threading.Thread(target=kill_twice, args=(done,))
        killer.start()
        # Slow enough that a worker dies in the middle of its range: the socket holds the reader back.
        slow = batch.selectExpr("transaction.ordinal AS ordinal", "reduce(sequence(1, 500), 0, (a, x) -> a + x) AS s")
        rows = slow.selectExpr("count(s)", "count(DISTINCT ordinal)").first()
        done.set()
        killer.join()
        results.append((rows[0], rows[1]))

    query = (
        changes.writeStream.foreachBatch(count)
        .option("checkpointLocation", f"{folder}/killed")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(failed_tasks(spark, str(query.runId)), sum(r for r, _ in results), sum(d for _, d in results))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
