"""A mirror on a cluster, with targets, control table and checkpoint in S3: executors, a worker and a driver are killed.

SELECT is the judge, and the audit has to agree.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tools.cluster.cluster import BUCKET
from tools.cluster.mirrors import BucketPlace, MirrorOnCluster

if TYPE_CHECKING:
    from tests.system.cluster.conftest import HeldPuts
    from tools.cluster.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]
TABLES = ("a", "b")
_ROWS = "result = [list(row) for row in spark.read.format('delta').load('{table}').select('id', 'v').collect()]"


def assert_equal(driver: MirrorOnCluster, database: str) -> None:
    for table in TABLES:
        found = driver.run(_ROWS.format(table=f"s3a://{BUCKET}/{driver.place.name}/{database}/{table}"))
        wanted = driver.place.cluster.primary.sql(f"SELECT id, v FROM {database}.{table}")
        assert sorted(map(tuple, found)) == sorted(wanted), table


def change(cluster: Cluster, database: str, turn: int) -> None:
    for table in TABLES:
        cluster.primary.sql(
            f"USE {database}",
            f"UPDATE {table} SET v = v + 1 WHERE id % 7 = {turn % 7}",
            f"DELETE FROM {table} WHERE id % 97 = {turn}",
            f"INSERT INTO {table} SELECT seq, -{turn} FROM seq_{10_000 * turn}_to_{10_000 * turn + 500}",
        )


@pytest.mark.parametrize("writer", ["native", "spark"])
def test_a_mirror_outlives_executors_a_worker_and_its_driver(
    cluster: Cluster, held_puts: HeldPuts, writer: str
) -> None:
    database = f"shop_{writer}"
    cluster.primary.sql(f"CREATE DATABASE {database}")
    for table in TABLES:
        cluster.primary.sql(
            f"USE {database}",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_5000",
        )
    place = BucketPlace(cluster, f"{database}.*", writer, {"writer": writer})
    endpoint = held_puts.proxy.endpoint
    with MirrorOnCluster(place, "node1", endpoint=endpoint) as driver:
        driver.run_whole()
        assert_equal(driver, database)

        # With native writes, executors write the files and make the commits; Spark commits in the driver.
        for turn, kind in ((1, held_puts.DATA), (5, held_puts.COMMITS)):
            change(cluster, database, turn)
            with ThreadPoolExecutor() as pool:
                run = pool.submit(driver.run_whole)
                held_puts.wait(kind)
                for worker in cluster.workers.values():
                    for executor in worker.executors():
                        executor.kill()
                held_puts.release()
                run.result()
            assert_equal(driver, database)

        cluster.workers["node2"].kill()
        change(cluster, database, 2)
        driver.run_whole()
        assert_equal(driver, database)
        cluster.workers["node2"].start()

        change(cluster, database, 3)
        driver.start()
        held_puts.wait(held_puts.COMMITS)
        driver.kill()  # the commit that is held back reaches the store without its driver
        held_puts.release()

    change(cluster, database, 4)
    with MirrorOnCluster(place, "node2", endpoint=endpoint) as driver:
        states = driver.run_whole()
        assert {(one.state, one.error) for one in states.values()} == {("current", None)}
        assert_equal(driver, database)
        audited = driver.audit()
        assert {table: one.equal for table, one in audited.tables.items()} == {
            f"{database}.{table}": True for table in TABLES
        }
    named = {row["source_table"]: row["writer"] for row in place.rows("mirror_control", "source_table, writer")}
    assert set(named) == set(TABLES)
    assert all(one.startswith(writer) for one in named.values()), named
