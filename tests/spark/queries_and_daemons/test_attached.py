"""Queries over the relay log of a real daemon: what they read, what they survive, and what they are told.

The daemon is the only replica of the primary here; a query that is attached never connects to it after `.load()`.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from replica.relay_log.directory.readers import registered_readers
from tests.spark.daemons import Daemon
from tests.spark.queries import Shop, ids, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture(scope="module")
def shared_daemon(primary: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon") / "relay"
    with Daemon(primary, folder, "--start", primary.gtid_binlog_pos()) as daemon:
        yield daemon


@pytest.fixture
def daemon(shop: Shop, shared_daemon: Daemon) -> Daemon:
    """For tests that only read its log."""
    shop.insert(1)  # the log knows what the table looks like
    shared_daemon.catch_up()
    return shared_daemon


@pytest.fixture
def own_daemon(shop: Shop) -> Iterator[Daemon]:
    """For tests that stop it."""
    with Daemon(shop.primary, shop.folder / "daemon", "--start", shop.start) as daemon:
        shop.insert(1)
        daemon.catch_up()
        yield daemon


def _attached(shop: Shop, daemon: Daemon, **options: object) -> DataFrame:
    """The source without a server."""
    no_server = dict.fromkeys(("host", "port", "user", "password"))
    return shop.changes(**no_server | {"relayDir": daemon.relay_dir} | options)


def _report(query: StreamingQuery) -> dict[str, Any]:
    """What the source says of the daemon's log in the last progress."""
    progress = query.lastProgress
    report: dict[str, Any] = json.loads(progress["sources"][0]["latestOffset"] or "{}") if progress else {}
    return report


def test_a_query_reads_what_the_daemon_writes_and_connects_to_nobody(shop: Shop, daemon: Daemon) -> None:
    others = {reader.name for reader in registered_readers(daemon.relay_dir)}
    threads = set(shop.primary.dump_threads())  # those of queries that ended before may go meanwhile
    run = shop.run()
    query = run.start(_attached(shop, daemon))
    wait(lambda: ids(run.rows) == [1], "the first row", query)
    shop.insert(2, 3)
    wait(lambda: ids(run.rows) == [1, 2, 3, 4], "rows that come later", query)
    assert set(shop.primary.dump_threads()) <= threads
    assert {row.source.server for row in run.rows} == {f"127.0.0.1:{shop.primary.port}"}
    wait(lambda: _report(query).get("bytesBehind") == 0, "the progress says that nothing is left", query)
    query.stop()
    (reader,) = {reader.name for reader in registered_readers(daemon.relay_dir)} - others
    assert reader.startswith("spark-")


def test_with_a_server_its_catalog_tells_the_columns_and_a_checkpoint_can_move(shop: Shop, daemon: Daemon) -> None:
    shop.sql(f"CREATE TABLE {shop.database}.empty (id INT PRIMARY KEY COMMENT 'the key', name VARCHAR(10))")
    options = {"table": f"{shop.database}.empty", "rowShape": "flat"}
    run = shop.run()
    for number, relay_dir in enumerate((shop.folder / "own", daemon.relay_dir, shop.folder / "own")):
        changes = shop.changes(**options, relayDir=relay_dir)
        assert changes.schema["id"].metadata.get("comment") == "the key"
        shop.sql(f"INSERT INTO {shop.database}.empty VALUES ({number}, 'x')")
        daemon.catch_up()
        # The checkpoint goes from a replica of its own to the daemon and back.
        assert [row.id for row in run.drain(changes)] == [*range(number + 1)]


@pytest.mark.slow
def test_latest_is_the_end_of_the_log_with_what_is_prepared_there(shop: Shop, daemon: Daemon) -> None:
    run = shop.run()
    with shop.primary.connect() as connection, connection.cursor() as cursor:
        rows = f"INSERT INTO {shop.orders} VALUES (2, 'prepared', 1)"
        for statement in ("XA START 'x'", rows, "XA END 'x'", "XA PREPARE 'x'"):
            cursor.execute(statement)
        shop.insert(3)
        daemon.catch_up()
        assert run.drain(_attached(shop, daemon, startingPosition="latest")) == []
        shop.insert(4)
        cursor.execute("XA COMMIT 'x'")
    daemon.catch_up()
    assert ids(run.drain(_attached(shop, daemon, startingPosition="latest"))) == [4, 2]


def test_what_a_load_can_know_to_be_wrong_is_said_there(shop: Shop, daemon: Daemon) -> None:
    def refused(words: str, **options: object) -> None:
        with pytest.raises(Exception, match=words):
            _attached(shop, daemon, **options)

    refused("there is no relay log in .*Start the daemon", relayDir=shop.folder / "nowhere")
    refused("has no rows of .*order, .*Did you mean .*orders", table=f"{shop.database}.order")
    refused("option user is missing", host="127.0.0.1")


@pytest.mark.slow
def test_a_daemon_that_is_down_is_waited_for(shop: Shop, own_daemon: Daemon) -> None:
    run = shop.run()
    own_daemon.stop()
    query = run.start(_attached(shop, own_daemon))
    wait(lambda: ids(run.rows) == [1], "what is in the log", query)
    shop.insert(2, 2)
    own_daemon.start()
    wait(lambda: ids(run.rows) == [1, 2, 3], "what came while it was down", query)
    query.stop()


@pytest.mark.slow
def test_a_folder_that_was_made_anew_is_no_gap(shop: Shop, own_daemon: Daemon) -> None:
    run = shop.run()
    query = run.start(_attached(shop, own_daemon, readerName="anew"))
    shop.insert(2, 2)
    wait(lambda: ids(run.rows) == [1, 2, 3], "rows", query)
    wait(lambda: own_daemon.is_read_by("anew"), "the query has told so", query)
    # The same history from its beginning: the query finds its place in it.
    own_daemon.stop()
    own_daemon.forget()
    own_daemon.start()
    shop.insert(4)
    wait(lambda: ids(run.rows) == [1, 2, 3, 4], "rows of the new log", query)
    wait(lambda: own_daemon.is_read_by("anew"), "the query has told so", query)
    # A log that begins behind the query's place: refused.
    own_daemon.stop()
    shop.insert(5)
    lost = shop.primary.gtid_binlog_pos()
    own_daemon.forget()
    own_daemon.start("--start", "latest")
    orders = itertools.count(6)  # where the log begins, it learns with the first of them that it receives
    wait(lambda: own_daemon.has(lost) or shop.insert(next(orders)), "the daemon begins")
    with pytest.raises(Exception, match=r"begins at .*: the transactions after .* were removed"):
        wait(lambda: False, "the error", query)
    assert ids(run.rows) == [1, 2, 3, 4]
