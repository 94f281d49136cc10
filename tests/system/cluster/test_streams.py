"""Streams and batch reads on a cluster, whose executors see no file of the driver: every change once after kills."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.fixtures.mariadb import wait_until
from tests.system.cluster.conftest import PATIENCE_S
from tools.cluster.cluster import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.cluster.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
TRANSACTIONS, ROWS = 60, 100
_STREAM = """
from pyspark.sql import functions as f
rows = spark.readStream.format("mariadb-binlog").options(**{options!r}).load()
found = rows.select(
    "op", f.coalesce("after.id", "before.id").alias("id"), f.col("after.v").alias("v"),
    f.col("transaction.gtid").alias("gtid"), f.col("transaction.ordinal").alias("ordinal"),
)
query = found.writeStream.format("delta").option("checkpointLocation", {checkpoint!r}).trigger(availableNow=True)
query = query.start({sink!r})
query.awaitTermination()
"""
_BATCH = """
from pyspark.sql import functions as f
rows = spark.read.format("mariadb-binlog").options(**{options!r}).load()
result = [list(row) for row in rows.select({columns}).collect()]
"""
_HOSTS = """
import socket
result = sorted(set(spark.sparkContext.parallelize(range(20), 20).map(lambda _: socket.gethostname()).collect()))
"""


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> Iterator[tuple[str, Counter[tuple[Any, ...]]]]:
    """The start of the transactions, and the row changes that they made: operation, key, value after."""
    chance, wanted = random.Random(41), Counter[tuple[Any, ...]]()
    cluster.primary.sql("CREATE DATABASE changes", "CREATE TABLE changes.t (id INT PRIMARY KEY, v INT)")
    start = cluster.primary.gtid_binlog_pos()
    rows: dict[int, int] = {}
    with cluster.primary.connect(database="changes") as connection, connection.cursor() as cursor:
        for number in range(TRANSACTIONS):
            new = {ROWS * number + each: chance.randrange(1000) for each in range(ROWS)}
            cursor.execute("BEGIN")
            cursor.execute(f"INSERT INTO t VALUES {', '.join(map(str, new.items()))}")
            wanted.update(("insert", *each) for each in new.items())
            rows |= new
            for key in chance.sample(sorted(rows), 10):
                rows[key] += 1
                cursor.execute(f"UPDATE t SET v = {rows[key]} WHERE id = {key}")
                wanted["update", key, rows[key]] += 1
            for key in chance.sample(sorted(rows), 5):
                del rows[key]
                cursor.execute(f"DELETE FROM t WHERE id = {key}")
                wanted["delete", key, None] += 1
            cursor.execute("COMMIT")
    yield start, wanted
    cluster.primary.sql("DROP DATABASE changes")


def options(cluster: Cluster, start: str, **more: str) -> dict[str, Any]:
    return {**cluster.server, "table": "changes.t", "startingPosition": start, **more}


def test_a_stream_delivers_every_change_once_although_executors_and_the_driver_die(
    cluster: Cluster, written: tuple[str, Counter[tuple[Any, ...]]]
) -> None:
    start, wanted = written
    code = _STREAM.format(
        options=options(cluster, start, maxTransactionsPerTrigger="5"),
        checkpoint=f"s3a://{BUCKET}/stream-checkpoint",
        sink=f"s3a://{BUCKET}/stream",
    )
    sink = cluster.store.folder / BUCKET / "stream"

    def files() -> int:
        return len(list(sink.glob("*.parquet")))

    with ExitStack() as stack, cluster.driver("node1") as driver:
        assert driver.run(_HOSTS) == ["node1", "node2"], "both nodes run tasks"
        run = stack.enter_context(ThreadPoolExecutor()).submit(driver.run, code)
        for worker in cluster.workers.values():
            seen = files()
            wait_until(lambda seen=seen: files() > seen, "the query writes", timeout_s=PATIENCE_S)  # type: ignore[misc]
            for executor in worker.executors():
                executor.kill()
        seen = files()
        wait_until(lambda: files() > seen, "the query goes on after its executors were killed", timeout_s=PATIENCE_S)
        assert not run.done(), run.exception() or "all was written before the driver was killed"
        driver.kill()
    with cluster.driver("node2") as driver:
        driver.run(code)
    found = DeltaTable(f"s3://{BUCKET}/stream", storage_options=cluster.store.options()).to_pyarrow_table()
    identities = Counter(zip(found["gtid"].to_pylist(), found["ordinal"].to_pylist(), strict=True))
    assert identities.most_common(1)[0][1] == 1, "a change came twice"
    assert Counter(zip(*(found[name].to_pylist() for name in ("op", "id", "v")), strict=True)) == wanted
    assert pa.types.is_integer(found.schema.field("id").type)


def test_batch_reads(cluster: Cluster, written: tuple[str, Counter[tuple[Any, ...]]]) -> None:
    start, wanted = written
    rows = cluster.primary.sql("SELECT id, v FROM changes.t")
    with cluster.driver("master") as driver:  # no executor runs on the host of this driver
        columns = "'op', f.coalesce('after.id', 'before.id'), 'after.v'"
        found = driver.run(_BATCH.format(options=options(cluster, start), columns=columns))
        assert Counter(map(tuple, found)) == wanted
        whole = {**cluster.server, "table": "changes.t", "content": "tables"}
        found = driver.run(_BATCH.format(options=whole, columns="'id', 'v'"))
        assert sorted(map(tuple, found)) == sorted(rows)
