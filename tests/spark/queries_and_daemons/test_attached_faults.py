"""What goes wrong around a daemon while queries read its log: kill -9, failover of the primary, retention.

Rows are held against what was written: each exactly once, and their replay equal to the server's tables.
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import GtidPosition, covers
from replica.relay_log.directory.readers import registered_readers
from streaming_source import started
from tests.fixtures.load.workload import DATABASE, Workload
from tests.integration.daemon.test_failover import hosts, in_step, replicate
from tests.spark.daemons import Daemon
from tests.spark.queries import Run, Shop, ids, wait
from tools.proofs.changes import DeliveredChange, check
from tools.proofs.job import changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server]

FULL = "--binlog-row-metadata=FULL"


def _finished(run: Run, query: StreamingQuery, position: str) -> None:
    """Wait until a query has committed everything up to a position, and stop it."""
    goal = GtidPosition.parse(position)

    def reached() -> bool:
        done = [int(path.name) for path in (run.checkpoint / "commits").glob("*") if path.name.isdigit()]
        if not done:
            return False
        lines = (run.checkpoint / "offsets" / str(max(done))).read_text().splitlines()
        return covers(GtidPosition.parse(json.loads(lines[-1])["gtid"]), goal)

    wait(reached, f"the query reaches {position}", query)
    query.stop()


@pytest.mark.slow
def test_two_queries_read_every_change_once_while_the_daemon_is_killed(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    primary = make_server("10.11", FULL)
    primary.add_user()
    work, chance = Workload(primary, seed=4711), random.Random(4711)
    work.create()
    with Daemon(primary, tmp_path / "relay", "--relay-max-file-bytes=256k") as daemon:
        daemon.catch_up()
        options = {"relayDir": str(daemon.relay_dir), "tables": f"{DATABASE}.*", "startingPosition": "earliest"}
        limits = ({"readerName": "small", "maxBytesPerTrigger": "300k"}, {"readerName": "large"})
        runs = [Run(tmp_path / limit["readerName"]) for limit in limits]
        queries = [started(run.start(changes(spark, options | limit))) for run, limit in zip(runs, limits, strict=True)]
        writer = threading.Thread(target=work.run, args=(1000,), kwargs={"pause_s": 0.25})
        writer.start()
        for _ in range(2):
            time.sleep(chance.uniform(0.5, 1.5))
            daemon.kill()
            time.sleep(chance.uniform(0, 0.3))
            daemon.start()
        writer.join()
        for run, query in zip(runs, queries, strict=True):
            _finished(run, query, work.gtid_position)
    for run in runs:
        delivered = [DeliveredChange(*row) for row in run.rows]
        assert check(delivered, work) == sum(map(len, work.transactions.values()))


def test_a_failover_of_the_primary_is_not_seen_by_the_query(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    first, second = (make_server("10.11", FULL, "--log-slave-updates", server_id=number) for number in (1, 2))
    replicate(first, second)
    shop = Shop(spark, first, "shop", tmp_path)
    first.sql("CREATE DATABASE shop", f"CREATE TABLE {shop.orders} (id INT PRIMARY KEY, name VARCHAR(30), price INT)")
    shop.insert(1, 2)
    with Daemon(first, tmp_path / "relay", "--host", hosts(first, second)) as daemon:
        daemon.catch_up()
        options = {"relayDir": str(daemon.relay_dir), "table": shop.orders, "startingPosition": "earliest"}
        run = shop.run()
        query = run.start(spark.readStream.format("mariadb-binlog").options(**options).load())
        wait(lambda: len(run.rows) == 2, "rows of the first server", query)
        in_step(first, second)
        first.kill()
        second.sql("STOP SLAVE", "FLUSH BINARY LOGS")
        second.sql(*(f"INSERT INTO {shop.orders} VALUES ({order}, '', 1)" for order in (3, 4)))
        wait(lambda: len(run.rows) == 4, "rows of the second server", query)
        query.stop()
    assert ids(run.rows) == [1, 2, 3, 4]
    assert [row.transaction.server_id for row in run.rows] == [1, 1, 2, 2]


NO_SERVER = dict.fromkeys(("host", "port", "user", "password"))


class Large:
    """Rows of 100 KB, a daemon that keeps 300 KB for nobody and 2 MB for its readers, and queries by name."""

    def __init__(self, shop: Shop, slow_readers: str) -> None:
        self.shop = shop
        self.table = f"{shop.database}.large"
        shop.sql(f"CREATE TABLE {self.table} (id INT PRIMARY KEY, note MEDIUMTEXT)")
        sizes = ("--relay-max-file-bytes=150k", "--retain-bytes=300k", "--relay-max-bytes=2m")
        begin = ("--start", shop.start)  # what other tests wrote may be many times what it keeps
        self.daemon = Daemon(shop.primary, shop.folder / "relay", *sizes, *begin, "--slow-readers", slow_readers)

    def insert(self, *numbers: int) -> None:
        self.shop.sql(*(f"INSERT INTO {self.table} VALUES ({n}, REPEAT('x', 100000))" for n in numbers))

    def changes(self, name: str) -> DataFrame:
        options = {"table": self.table, "relayDir": self.daemon.relay_dir, "rowShape": "flat", "readerName": name}
        return self.shop.changes(**NO_SERVER | options)

    @property
    def readers(self) -> set[str]:
        return {reader.name for reader in registered_readers(self.daemon.relay_dir)}


def _keys(run: Run) -> list[int]:
    return [row.id for row in run.rows]


@pytest.mark.slow
def test_files_of_a_stopped_query_are_dropped_at_the_limit_and_it_is_told(shop: Shop) -> None:
    large, stopped, live = Large(shop, "drop"), shop.run("stopped"), shop.run("live")
    with large.daemon as daemon:
        large.insert(1, 2)
        daemon.catch_up()
        stopped.drain(large.changes("stopped"))
        query = live.start(large.changes("live"))
        for last in (14, 26):  # more than is kept with them, but no more at once than a live query can have unread
            large.insert(*range(last - 11, last + 1))
            wait(lambda last=last: _keys(live) == [*range(1, last + 1)], "what the live query reads", query)
            wait(lambda: daemon.is_read_by("live"), "the live query lets go of it", query)
        wait(lambda: large.readers == {"live"}, "the stopped query is dropped")
        with pytest.raises(Exception, match=r"for the reader 'stopped'.*slow_readers=pause"):
            stopped.drain(large.changes("stopped"))
        query.stop()


@pytest.mark.slow
def test_with_pause_the_daemon_waits_for_a_stopped_query(shop: Shop) -> None:
    large, stopped = Large(shop, "pause"), shop.run("stopped")
    with large.daemon as daemon:
        large.insert(1)
        daemon.catch_up()
        stopped.drain(large.changes("stopped"))
        large.insert(*range(2, 52))  # more than the limit and one receive of 2 MB
        wait(lambda: "receiving paused" in daemon.log.read_text(), "the daemon pauses")
        assert large.readers == {"stopped"}
        assert not daemon.has(shop.primary.gtid_binlog_pos())
        query = stopped.start(large.changes("stopped"))
        wait(lambda: _keys(stopped) == [*range(1, 52)], "the query and the daemon go on", query)
        query.stop()
