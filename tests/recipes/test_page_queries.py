"""The queries of README, docs/spark.md and docs/snapshot.md, as they are written, in one Spark with Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.page_blocks import block
from tests.spark.daemons import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow]

_STARTED = """
import time
(query,) = spark.streams.active
end = time.monotonic() + 90
while not any(progress.numInputRows for progress in query.recentProgress):
    assert query.isActive, query.exception()
    assert time.monotonic() < end, "no row comes"
    time.sleep(0.2)
"""
_STOPPED = "query.stop()\n"
_ROWS = """
query = {frame}.writeStream.format("memory").queryName("{name}").trigger(availableNow=True).start()
query.awaitTermination()
result = spark.table("{name}").count()
"""


@pytest.fixture(scope="module")
def pages(workbench: Workbench, primary: MariaDb) -> Iterator[Workbench]:
    """The workbench, with the places that these pages make up."""
    recipes, host = workbench.replaced, f"{primary.host}:{primary.port}"
    workbench.replaced = {
        '"db1,db2"': f'"{host},{host}"',
        "/data/checkpoint": f"{workbench.folder}/page",
        "/backup/binlogs": f"{primary.datadir}/bin.0*",
        "/archive/binlogs": f"{primary.datadir}/bin.0*",
        "2026-11-21T00:00:00Z": "2020-01-01T00:00:00Z",
        **recipes,
    }
    yield workbench
    workbench.replaced = recipes


def test_the_stream_of_the_readme_fills_a_table_and_is_merged(pages: Workbench, primary: MariaDb) -> None:
    here = "spark.sql('CREATE DATABASE IF NOT EXISTS lake')\n"
    pages.run(here + block("README.md", "stream") + _STARTED + _STOPPED + "result = True")
    there = primary.value("SELECT COUNT(*) FROM shop.orders")
    assert pages.run("result = spark.table('order_changes').where(\"op = 'read'\").count()") == there
    table = "spark.sql('CREATE TABLE lake.orders (id INT, name STRING, price DECIMAL(10,2)) USING delta')\n"
    merge = block("README.md", "upsert").replace(
        '"checkpointLocation", "…"', '"checkpointLocation", "/data/checkpoint2"'
    )
    flat = 'changes = changes.select("*")\n'
    pages.run(table + flat + merge + _STARTED + _STOPPED + "result = True")
    assert pages.run("result = spark.table('lake.orders').count()") == there


def test_files_are_read_as_the_readme_says(pages: Workbench, primary: MariaDb) -> None:
    code = "rows = " + block("README.md", "files")
    assert pages.run(code + "result = rows.where(\"table = 'orders'\").count()") > 500
    assert pages.run(block("docs/spark.md", "archive") + "result = changes.count()") > 500
    arrow = block("README.md", "arrow").replace('"bin.000041", "bin.000042"', f'"{primary.datadir / "bin.000001"}"')
    assert pages.run("import pyarrow\n" + arrow + "result = changes.num_rows") > 500


def test_the_mirror_of_the_readme_is_that_of_its_page(pages: Workbench, primary: MariaDb) -> None:
    spark_sql = "spark.sql('CREATE DATABASE IF NOT EXISTS lake')\n"
    pages.run(spark_sql + block("README.md", "mirror") + _STARTED + _STOPPED + "result = True")
    assert pages.run("result = spark.table('lake.shop_customers').columns") == ["id", "name"]
    there = primary.value("SELECT COUNT(*) FROM shop.orders")
    assert pages.run("result = spark.table('lake.shop_orders').count()") == there


def test_the_first_stream_of_the_page_of_spark(pages: Workbench, primary: MariaDb) -> None:
    code = block("docs/spark.md", "stream")
    assert pages.run(code + "result = query.isActive") is True
    pages.run(_STOPPED + "result = True")
    absent = block("docs/spark.md", "absent").replace("changes.with", "files.with")
    files = "files = spark.read.format('mariadb-binlog').load('/archive/binlogs', table='shop.orders')\n"
    assert pages.run(files + absent + "result = updated.where('name_given').count()") > 0
    primary.sql(
        "CREATE DATABASE versions",
        "CREATE TABLE versions.prices (id INT PRIMARY KEY, price INT) WITH SYSTEM VERSIONING",
        "INSERT INTO versions.prices VALUES (1, 1), (2, 2)",
        "UPDATE versions.prices SET price = 3 WHERE id = 1",
        "DELETE FROM versions.prices WHERE id = 2",
    )
    versions = files.replace("shop.orders", "versions.prices").replace("files =", "changes =")
    history = block("docs/spark.md", "history")
    assert pages.run(versions + history + "result = [closed.count(), current.count(), gone.count()]") == [2, 3, 1]


def test_a_range_of_the_past_and_tables_as_they_were(pages: Workbench, primary: MariaDb) -> None:
    later = {"2026-11-22T00:00:00Z": "latest", '"2026-11-23T11:58:00Z"': f'"{primary.gtid_binlog_pos()}"'}
    pages.replaced = {**later, **pages.replaced}
    assert pages.run(block("docs/spark.md", "range") + "result = changes.count()") > 500
    there = primary.value("SELECT COUNT(*) FROM shop.orders")
    assert pages.run(block("docs/snapshot.md", "past") + "result = before.count()") == there
    every = pages.run(block("docs/snapshot.md", "tables") + "result = tables.where(\"table = 'orders'\").count()")
    assert every == there


def test_tables_first_then_changes(pages: Workbench, primary: MariaDb) -> None:
    there = primary.value("SELECT (SELECT COUNT(*) FROM shop.orders) + (SELECT COUNT(*) FROM shop.`lines`)")
    there += primary.value("SELECT COUNT(*) FROM shop.customers")
    assert pages.run(block("docs/snapshot.md", "initial") + _ROWS.format(frame="changes", name="first")) == there


def test_a_query_beside_a_daemon(pages: Workbench, primary: MariaDb, tmp_path: Path) -> None:
    with Daemon(primary, tmp_path / "relay", "--relay-access", "all") as daemon:
        daemon.catch_up()
        pages.replaced = {"/var/lib/mariadb-replica/relay": str(daemon.relay_dir), **pages.replaced}
        earliest = '    .option("startingPosition", "earliest")\n    .load()'
        code = block("docs/spark.md", "daemon").replace("    .load()", earliest)
        assert pages.run(code + _ROWS.format(frame="changes.select('op')", name="beside")) > 500
