"""What users get wrong: one clear error, early where it can be known early, and a checkpoint that still works after."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.spark.queries import PATIENCE_S, Shop, ids, wait

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server]


def _ours(error: Exception) -> str:
    """Our part of an error's line, with Spark's own words before it and after it."""
    lines = [line for line in str(error).splitlines() if "replica.errors." in line]
    assert lines, f"none of our errors: {error}"
    return lines[0].partition("replica.errors.")[2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"password": "wrong"},
            r"AuthenticationError: 127.0.0.1:\d+ refused: Access denied for user 'repl'@.*Check user, password",
        ),
        ({"tabel": "a.b"}, "ConfigError: unknown option 'tabel' for mariadb-binlog. Did you mean table\\?"),
        ({"maxBytesPerTrigger": "lots"}, "ConfigError: option maxBytesPerTrigger='lots' is not a size"),
        ({"startingPosition": "0-1"}, "ConfigError: option startingPosition='0-1' is neither latest nor earliest"),
        ({"rowShape": "flat", "table": None, "tables": "a.*"}, "ConfigError: rowShape=flat needs table=database.table"),
        ({"host": "127.0.0.1", "port": 1, "connectRetry": "1s"}, "DisconnectedError: no connection to 127.0.0.1:1"),
    ],
    ids=["password", "unknown-option", "size", "position", "flat", "no-server"],
)
def test_what_load_refuses(shop: Shop, options: dict[str, object], expected: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        shop.changes(**options)
    message = _ours(caught.value)
    assert re.match(expected, message), message
    assert "replica-secret" not in str(caught.value)


def test_an_unknown_table_is_named_with_its_neighbours(shop: Shop) -> None:
    with pytest.raises(AnalysisException) as caught:
        shop.changes(table=f"{shop.database}.order")
    message = _ours(caught.value)
    assert message.startswith(f"SchemaError: {shop.database}.order does not exist on the server"), message
    assert f"Did you mean {shop.orders}?" in message


def test_unmet_prerequisites_come_all_at_once(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    server = make_server("10.11", "--skip-log-bin", "--binlog-format=STATEMENT")
    server.add_user(grants="SELECT")
    shop = Shop(spark, server, "shop", tmp_path)
    shop.start = ""
    server.sql("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT)")
    with pytest.raises(AnalysisException) as caught:
        shop.changes(startingPosition="latest")
    message = _ours(caught.value)
    assert message.startswith("PrerequisiteError: cannot replicate from 127.0.0.1:")
    for part in ("log_bin", "binlog_format is STATEMENT", "REPLICATION SLAVE", "GRANT REPLICATION SLAVE ON *.* TO"):
        assert part in message


def _fails(shop: Shop, name: str = "failing", **options: object) -> str:
    run = shop.run(name)
    query = run.start(shop.changes(**options), available_now=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(PATIENCE_S)
    assert run.rows == []
    return _ours(caught.value)


def _purge(server: MariaDb, oldest: str) -> None:
    """The server keeps a file that its crash recovery may need, without a word, until it has written a checkpoint."""

    def purged() -> bool:
        server.sql(f"PURGE BINARY LOGS TO '{oldest}'")
        return server.binlogs()[0] == oldest

    wait(purged, f"{oldest} is the oldest binlog")


@pytest.mark.slow
def test_a_position_the_server_does_not_have_or_has_purged_fails_before_the_first_row(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    server = make_server("11.8")
    server.add_user()
    with Shop(spark, server, "shop", tmp_path) as shop:
        purged = shop.start
        shop.insert(1, 3)
        shop.sql("FLUSH BINARY LOGS")
        shop.insert(4, 2)
        message = _fails(shop, "future", startingPosition="0-1-4711")
        assert message.startswith("PositionLostError: "), message
        assert "0-1-4711" in message
        wait(lambda: not server.dump_threads(), "the last replica is gone")
        _purge(server, "bin.000002")
        message = _fails(shop, "purged", startingPosition=purged, relayDir=tmp_path / "purged")
        assert message.startswith("PositionPurgedError: "), message
        assert "purged" in message
        # "earliest" is what the server still has, not the empty position, which it would refuse by now.
        run = shop.run("earliest")
        assert ids(run.drain(shop.changes(startingPosition="earliest", relayDir=tmp_path / "earliest"))) == [4, 5]
        # A checkpoint whose range was purged: an error, not a gap.
        shop.insert(6)
        shop.sql("FLUSH BINARY LOGS")
        shop.insert(7)
        wait(lambda: not server.dump_threads(), "the last replica is gone")
        _purge(server, "bin.000003")
        query = run.start(
            shop.changes(startingPosition="earliest", relayDir=tmp_path / "elsewhere"), available_now=True
        )
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(PATIENCE_S)
        assert _ours(caught.value).startswith("PositionPurgedError: "), caught.value
        assert ids(run.rows) == [4, 5]


@pytest.mark.slow
def test_a_second_replica_with_our_server_id_ends_the_query_with_a_word_on_it(shop: Shop) -> None:
    run = shop.run("first")
    shop.insert(1)
    first = run.start(shop.changes(serverId=4711))
    wait(lambda: len(run.rows) == 1, "rows", first)
    other = shop.run("second")
    second = other.start(shop.changes(serverId=4711, relayDir=shop.folder / "other"))
    with pytest.raises(StreamingQueryException) as caught:
        first.awaitTermination(PATIENCE_S)
    message = _ours(caught.value)
    assert message.startswith("DuplicateServerIdError: "), message
    assert "server id" in message
    wait(lambda: len(other.rows) == 1, "the other query goes on", second)
    second.stop()


def test_a_changed_table_under_a_typed_query(shop: Shop) -> None:
    run = shop.run()
    changes = shop.changes()
    shop.insert(1)
    shop.sql(f"ALTER TABLE {shop.orders} ADD COLUMN note VARCHAR(10) FIRST")
    shop.sql(f"INSERT INTO {shop.orders} (id, note, name, price) VALUES (2, 'n', 'two', 2)")
    shop.sql(f"ALTER TABLE {shop.orders} DROP COLUMN name")
    shop.sql(f"INSERT INTO {shop.orders} (id, price) VALUES (3, 3)")
    # Names are logged: the query goes on with the columns it knows.
    assert [tuple(row.after)[:2] for row in run.drain(changes)] == [(1, "order 1"), (2, "two"), (3, None)]
    shop.sql(f"ALTER TABLE {shop.orders} MODIFY price DOUBLE")
    shop.sql(f"INSERT INTO {shop.orders} (id, price) VALUES (4, 4)")
    query = run.start(changes, available_now=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(PATIENCE_S)
    message = _ours(caught.value)
    assert message.startswith(f"SchemaError: {shop.orders} is changed by the transaction ")
    assert "ALTER TABLE" in message
    assert "Start the query with a new checkpoint" in message
    assert ids(run.rows) == [1, 2, 3]


def test_a_changed_table_whose_names_are_not_logged_is_followed(
    spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path
) -> None:
    server = make_server("10.5")
    server.add_user()
    with Shop(spark, server, "shop", tmp_path) as shop:
        changes = shop.changes()
        shop.sql("ALTER TABLE shop.orders ADD COLUMN note VARCHAR(10) FIRST")
        shop.sql("INSERT INTO shop.orders VALUES ('n', 2, 'two', 2)")
        rows = shop.run().drain(changes)
        assert [row.after.asDict() for row in rows] == [{"id": 2, "name": "two", "price": 2}]
