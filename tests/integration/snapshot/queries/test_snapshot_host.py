"""Tables read from a replica, while their changes come from its primary (snapshotHost): exact, however late it is.

The replica stands still for some seconds again and again, so that what it shows is older than the batch's position. In
between it gets to where its primary was when it went on, so that no machine is too slow for it.
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import PrerequisiteError
from replica.options.values import Endpoint
from replica.snapshot.chunks.schedule import ReadLimit
from replica.snapshot.pace import Pace
from replica.snapshot.watermark import low as server_lag
from tests.fixtures.load.beside import beside
from tests.fixtures.mariadb import wait_until
from tests.integration.snapshot.kit.table_reading import TableReading, Writers
from tests.integration.snapshot.queries.test_initial import ORDERS, ROW, InitialQuery, Shop
from tests.integration.snapshot.reconcile.test_lower_position import replicate

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

STILL_S = 2.0
"""How long the replica stands still."""


@pytest.fixture
def pair(make_server: Callable[..., MariaDb], server_version: str) -> tuple[MariaDb, MariaDb]:
    primary = make_server(server_version, server_id=1)
    replica = make_server(server_version, "--log-slave-updates", server_id=2)
    replicate(primary, replica)
    replica.add_user()
    return primary, replica


def caught_up(primary: MariaDb, replica: MariaDb) -> None:
    wait_until(lambda: replica.gtid_binlog_pos() == primary.gtid_binlog_pos(), "the replica has all of the primary")


def lagging(primary: MariaDb, replica: MariaDb) -> contextlib.AbstractContextManager[None]:
    """Let the replica stand still again and again, until the end of the block."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            replica.sql("STOP SLAVE SQL_THREAD")
            stop.wait(STILL_S)
            reached = primary.gtid_binlog_pos()
            replica.sql("START SLAVE SQL_THREAD")
            replica.sql(f"SELECT MASTER_GTID_WAIT('{reached}', 50)")

    return beside(run)


def test_each_batch_holds_at_its_position_while_the_replica_lags(pair: tuple[MariaDb, MariaDb], tmp_path: Path) -> None:
    primary, replica = pair
    primary.sql("CREATE DATABASE shop")
    for table in ("a", "b"):
        primary.sql(
            f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT) ENGINE=InnoDB",
            f"INSERT INTO shop.{table} SELECT seq, seq FROM shop.seq_1_to_3000",
        )
    primary.add_user()
    caught_up(primary, replica)
    keys = {("shop", "a"): ("id",), ("shop", "b"): ("id",)}
    pace = Pace(connections=2, chunk_rows=150, rows_a_second=1500.0, host=Endpoint(replica.host, replica.port))
    with (
        Writers(primary, ["shop.a", "shop.b"], keys=3500) as writers,
        lagging(primary, replica),
        TableReading(primary, tmp_path, keys, pace=pace, wanted=lambda *name: name in keys) as reading,
    ):
        restarts = 0

        def each() -> None:
            nonlocal restarts
            if len(reading.batches) in (4, 9):
                before, after, v = reading.batches[-1]
                reading.restart()
                restarts += 1
                reading.judge(before, after, v)

        reading.to_the_end(limit=ReadLimit(600), each=each)
        assert writers.commits > 100
    assert restarts == 2
    assert len(reading.batches) > 5


def test_a_query_with_lost_files_is_as_the_primary(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    primary, replica = pair
    shop = Shop(primary)
    shop.make("orders", ORDERS, 1500, ROW)
    caught_up(primary, replica)
    query = InitialQuery(
        shop,
        tmp_path,
        table=f"{shop.database}.orders",
        snapshotHost=f"{replica.host}:{replica.port}",
        snapshotChunkRows=250,
        maxRowsPerTrigger=800,
    )
    request.addfinalizer(query.kill)
    query.begin()
    with shop.writing("orders", keys=1700), lagging(primary, replica):
        lost = 0
        while query.reading:
            assert query.offset is not None
            end = query.plan_batch()
            if end.snapshot != query.offset.snapshot and lost < 2:
                lost += 1
                query.kill(lose_spool=True, lose_relay=lost == 2)
            query.apply(end, query.read(end))
            query.planner.commit(end)
    query.catch_up()
    assert query.rows == shop.state("orders")
    assert query.reads > 200
    assert lost == 2


def test_tables_that_the_replica_does_not_have_yet_are_read_once_it_has(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path
) -> None:
    primary, replica = pair
    primary.sql("CREATE DATABASE shop")
    primary.add_user()
    caught_up(primary, replica)
    replica.sql("STOP SLAVE SQL_THREAD")
    create = "CREATE TABLE shop.{} (id INT PRIMARY KEY, v INT) ENGINE=InnoDB"
    primary.sql(create.format("before"), "INSERT INTO shop.before VALUES (1, 1)")
    keys = {("shop", "before"): ("id",), ("shop", "later"): ("id",)}
    pace = Pace(connections=2, host=Endpoint(replica.host, replica.port))
    reading = TableReading(primary, tmp_path, keys, pace=pace, wanted=lambda database, _: database == "shop")
    going_on = threading.Timer(1.0, lambda: replica.sql("START SLAVE SQL_THREAD"))
    going_on.start()
    with reading:  # waits until the replica has got to the beginning
        going_on.join()
        replica.sql("STOP SLAVE SQL_THREAD")
        primary.sql(create.format("later"), "INSERT INTO shop.later VALUES (1, 1), (2, 2)")
        wait_until(lambda: str(reading.replica.head().position) == primary.gtid_binlog_pos(), "it is received")
        going_on = threading.Timer(2.0, lambda: replica.sql("START SLAVE SQL_THREAD"))
        going_on.start()
        reading.to_the_end()
        going_on.join()
    assert reading.delivered == {("shop", "before"): 1, ("shop", "later"): 2}


def test_a_replica_that_does_not_catch_up_is_an_error(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    primary.add_user()
    caught_up(primary, replica)
    pace = Pace(connections=1, host=Endpoint(replica.host, replica.port))
    with TableReading(primary, tmp_path, {("shop", "t"): ("id",)}, pace=pace) as reading:
        replica.sql("STOP SLAVE SQL_THREAD")
        primary.sql("INSERT INTO shop.t VALUES (1, 1)")
        wait_until(lambda: str(reading.replica.head().position) == primary.gtid_binlog_pos(), "it is received")
        monkeypatch.setattr(server_lag, "LAG_S", 0.5)
        with pytest.raises(PrerequisiteError, match="has not reached"):
            reading.restart()


def test_a_lost_batch_is_not_waited_for_without_end_on_a_replica_that_stands_still(
    pair: tuple[MariaDb, MariaDb], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT) ENGINE=InnoDB")
    primary.sql("INSERT INTO shop.t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    primary.add_user()
    caught_up(primary, replica)
    host, one = Endpoint(replica.host, replica.port), ReadLimit(1)
    pace = Pace(connections=1, chunk_rows=1, host=host)
    with TableReading(primary, tmp_path, {("shop", "t"): ("id",)}, pace=pace) as reading:
        wait_until(lambda: str(reading.replica.head().position) == primary.gtid_binlog_pos(), "it is received")
        wait_until(lambda: reading.step(one), "a row is delivered")
        wait_until(reading.snapshot.ready, "another one is read")
        replica.sql("STOP SLAVE SQL_THREAD")
        primary.sql("UPDATE shop.t SET v = 9")
        wait_until(lambda: str(reading.replica.head().position) == primary.gtid_binlog_pos(), "it is received")
        wait_until(lambda: reading.step(one), "a batch is planned, ahead of the replica")
        shutil.rmtree(tmp_path / "spool")
        monkeypatch.setattr(server_lag, "LAG_S", 0.5)
        with pytest.raises(PrerequisiteError, match="has not reached") as caught:
            reading.snapshot.parts(*reading.batches[-1])
        assert str(host) in caught.value.message
        assert primary.gtid_binlog_pos() in caught.value.message
        monkeypatch.undo()
        replica.sql("START SLAVE SQL_THREAD")
        reading.judge(*reading.batches[-1])
    assert reading.delivered == {("shop", "t"): 3}, "the second row twice"
