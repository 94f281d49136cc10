"""A primary with a small shop, and a workbench whose Spark session writes Delta tables and serves Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from streaming_source.mirroring.apply.parallel_applier import INTERPRETED
from tests.fixtures.jars import JarsMissingError, delta_settings
from tests.fixtures.mariadb import MariaDb
from tests.recipes.workbench import Workbench
from tests.spark.conftest import CONFIGURATION

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2))",
    "CREATE TABLE shop.customers (id BIGINT PRIMARY KEY, name VARCHAR(30))",
    "CREATE TABLE shop.`lines` (order_id BIGINT, line INT, amount DECIMAL(10,2), note TEXT)",
    "ALTER TABLE shop.`lines` ADD PRIMARY KEY (order_id, line)",
    "INSERT INTO shop.orders VALUES (1, 'one', 1.25), (2, 'two', NULL), (3, NULL, 3.75), (4, 'four', 4)",
    "UPDATE shop.orders SET price = price + 1 WHERE id IN (1, 2)",
    "DELETE FROM shop.orders WHERE id = 4",
    "INSERT INTO shop.orders VALUES (4, 'four again', NULL), (5, 'füñf', 5)",
    "UPDATE shop.orders SET id = 50, price = NULL WHERE id = 5",
    "UPDATE shop.orders SET price = 9 WHERE id = 1",
    # Two rows change places: no statement can swap keys, so one stands aside.
    "USE shop",
    "BEGIN",
    "UPDATE shop.orders SET id = 100 WHERE id = 1",
    "UPDATE shop.orders SET id = 1 WHERE id = 2",
    "UPDATE shop.orders SET id = 2 WHERE id = 100",
    "INSERT INTO shop.orders SELECT seq, CONCAT('many ', seq), seq FROM seq_1000_to_1500",
    "DELETE FROM shop.orders WHERE id = 3",
    "COMMIT",
    "INSERT INTO shop.orders VALUES (3, 'new', 3)",
    "DELETE FROM shop.orders WHERE id BETWEEN 1100 AND 1200",
)
CONNECT_PORT = """
service = getattr(spark._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
result = getattr(service, "MODULE$").localPort()
"""


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        running.sql(*TABLES)
        yield running


@pytest.fixture(scope="module")
def workbench(primary: MariaDb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    try:
        tables = delta_settings(catalog="lake")
    except JarsMissingError as error:
        pytest.fail(str(error), pytrace=False)
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "lake").mkdir()
    secret = folder / "secret"
    secret.write_text("replica-secret", encoding="utf-8")
    secret.chmod(0o600)
    settings = (
        CONFIGURATION
        | tables
        | {
            # In a heap of 1 GB, each of Parquet's buffers is huge to G1, which marks the whole heap for them each time.
            "spark.driver.extraJavaOptions": CONFIGURATION["spark.driver.extraJavaOptions"] + " -XX:+UseSerialGC",
            # A few hundred rows are read sooner than classes for reading them are compiled.
            **INTERPRETED,
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
    )
    replaced = {
        '"db1"': f'"{primary.host}:{primary.port}"',
        "/run/secrets/repl": str(secret),
        "/lake": str(folder / "lake"),
        "/checkpoints": str(folder / "checkpoints"),
    }
    with Workbench(settings, folder, replaced) as bench:
        bench.replaced["sc://spark-server:15002"] = f"sc://127.0.0.1:{bench.run(CONNECT_PORT)}"
        bench.recipe("source")
        yield bench
