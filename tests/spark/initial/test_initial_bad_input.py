"""What ends a query that reads tables first: one error each, class and sentence in the first lines, and nothing lost.

Each mistake is one that a new user makes, or a server's owner; where it can be mended, the query goes on from its
checkpoint.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from tests.fixtures.small_disk import MountRefusedError, small_disk
from tests.spark.errors.test_error_lines import judge
from tests.spark.initial.test_initial import StrictSink, fill, state
from tests.spark.queries import COLUMNS, PATIENCE_S, Run, Shop, wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.fixtures.mariadb import MariaDb

pytestmark = [pytest.mark.spark, pytest.mark.server]


def refusal(run: Run, changes: Callable[[], DataFrame], kind: str) -> str:
    """Return the message that a query ends with."""
    with pytest.raises((AnalysisException, StreamingQueryException)) as caught:
        run.start(changes()).awaitTermination(PATIENCE_S)
    return judge(caught.value, kind)


def initial(shop: Shop, **options: Any) -> DataFrame:
    return shop.changes(**{"startingPosition": "initial", **options})


def begun(shop: Shop, run: Run, **options: Any) -> None:
    """Deliver a part of the table, and stop."""
    query = run.start(initial(shop, snapshotChunkRows=100, maxRowsPerTrigger=100, snapshotRowsPerSecond=100, **options))
    wait(lambda: any(row.op == "read" for row in run.rows), "the first rows", query)
    query.stop()
    assert run.offsets()[-1]["snapshot"].get("open")


def whole(shop: Shop, run: Run, **options: Any) -> None:
    run.drain(initial(shop, **options))
    sink = StrictSink()
    sink.apply_envelope(run.rows)
    assert sink.rows == state(shop)


@pytest.fixture
def reader(shop: Shop) -> Iterator[dict[str, str]]:
    """An account that may see the orders, but not all of what it is asked for."""
    shop.primary.add_user("reader", "reader-secret", grants="REPLICATION SLAVE")
    shop.sql(f"CREATE TABLE {shop.database}.hidden (id INT PRIMARY KEY)")
    yield {"user": "reader", "password": "reader-secret"}
    shop.sql("SET SESSION sql_log_bin = 0", "DROP USER 'reader'@'%'")


def test_select_is_missing_on_a_table_or_on_a_column(shop: Shop, reader: dict[str, str]) -> None:
    def grant(what: str) -> None:
        shop.sql("SET SESSION sql_log_bin = 0", f"GRANT {what} TO 'reader'@'%'")

    fill(shop, 20)
    run = shop.run()
    grant(f"SELECT (id, name), INSERT (price) ON {shop.orders}")
    said = refusal(run, lambda: initial(shop, **reader), "AuthenticationError")
    assert f"no SELECT on {shop.orders}, or not on all columns" in said
    assert "GRANT SELECT ON" in said
    grant(f"SELECT ON {shop.orders}")
    both = {"tables": f"{shop.orders},{shop.database}.hidden"}
    said = refusal(run, lambda: initial(shop, **reader, **both), "AuthenticationError")
    assert f"{shop.database}.hidden: the account reader@% has no SELECT on it" in said
    whole(shop, run, **reader)


def test_a_table_without_a_key(shop: Shop) -> None:
    shop.sql(f"CREATE TABLE {shop.database}.nokey (a INT)")
    said = refusal(shop.run(), lambda: initial(shop, table=f"{shop.database}.nokey"), "PrerequisiteError")
    assert "ALTER TABLE" in said


@pytest.mark.slow
def test_a_checkpoint_of_another_selection(shop: Shop) -> None:
    fill(shop, 500)
    shop.sql(f"CREATE TABLE {shop.database}.other (id INT PRIMARY KEY)")
    run = shop.run()
    begun(shop, run)
    said = refusal(run, lambda: initial(shop, table=f"{shop.database}.other"), "ConfigError")
    assert "checkpoint" in said
    whole(shop, run)


@pytest.mark.slow
def test_a_table_that_is_dropped_and_made_again_in_the_middle(shop: Shop) -> None:
    fill(shop, 1000)
    run = shop.run()
    begun(shop, run)
    delivered = run.rows
    shop.sql(f"DROP TABLE {shop.orders}", f"CREATE TABLE {shop.orders} ({COLUMNS})")
    fill(shop, 30)
    rows = run.drain(initial(shop))[len(delivered) :]
    made = next(number for number, row in enumerate(rows) if row.op == "insert")
    assert all(row.op == "read" for row in rows[:made]), "a batch that was planned before"
    assert [(row.op, row.after.id) for row in rows[made:]] == [("insert", number) for number in range(1, 31)]


@pytest.mark.slow
def test_a_disk_that_is_too_small_for_a_table_that_is_delivered_as_a_whole(shop: Shop, tmp_path: Path) -> None:
    key = "MODIFY name VARCHAR(60) COLLATE utf8mb4_unicode_ci, DROP PRIMARY KEY, ADD PRIMARY KEY (name)"
    values = f"seq, CONCAT('{'x' * 40}', seq), 1 FROM {shop.database}.seq_1_to_200000"
    shop.sql(f"ALTER TABLE {shop.orders} {key}", f"INSERT INTO {shop.orders} SELECT {values}")
    run = shop.run()
    try:
        with small_disk(tmp_path, 24) as disk:
            options = {"relayDir": disk / "relay", "minFreeBytes": "1m"}
            said = refusal(run, lambda: initial(shop, **options), "DiskFullError")
            assert f"while reading table {shop.orders}" in said
            assert "Free space there" in said
    except MountRefusedError:
        pytest.skip("mounting is not allowed here")
    assert len(run.drain(initial(shop))) == 200_000


@pytest.fixture
def own(spark: SparkSession, make_server: Callable[..., MariaDb], tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    def made(*options: str) -> Shop:
        server = make_server("10.11", "--binlog-row-metadata=FULL", *options)
        server.add_user()
        return stack.enter_context(Shop(spark, server, "shop", tmp_path))

    with contextlib.ExitStack() as stack:
        yield made


@pytest.mark.slow
def test_an_isolation_level_that_the_server_forces_is_set_back(own: Callable[..., Shop]) -> None:
    shop = own("--init-connect=SET SESSION tx_isolation='READ-COMMITTED'", "--transaction-isolation=SERIALIZABLE")
    fill(shop, 300)
    whole(shop, shop.run())


@pytest.mark.slow
def test_a_server_without_a_binlog(own: Callable[..., Shop]) -> None:
    shop = own("--skip-log-bin")
    assert "Fix: put log_bin=binlog" in refusal(shop.run(), lambda: initial(shop), "PrerequisiteError")


@pytest.mark.slow
def test_a_binlog_that_was_purged_while_the_relay_log_was_lost(own: Callable[..., Shop]) -> None:
    shop = own()
    fill(shop, 1000)
    run = shop.run()
    begun(shop, run)
    shop.sql(f"UPDATE {shop.orders} SET price = 1", "FLUSH BINARY LOGS", f"UPDATE {shop.orders} SET price = 2")
    shop.sql("FLUSH BINARY LOGS")
    shop.primary.purge_binlogs()
    shop.lose_relay()
    said = refusal(run, lambda: initial(shop), "PositionPurgedError")
    assert "startingPosition=initial" in said
