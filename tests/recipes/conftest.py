"""A primary with a small shop, and a workbench whose Spark session writes Delta tables and serves Spark Connect."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.jars import JarsMissingError, delta_settings
from tests.fixtures.mariadb import MariaDb
from tests.recipes.workbench import Workbench
from tests.spark.conftest import CONFIGURATION

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, name VARCHAR(30), price DECIMAL(10,2))",
    "CREATE TABLE shop.customers (id BIGINT PRIMARY KEY, name VARCHAR(30)) WITH SYSTEM VERSIONING",
    "CREATE TABLE shop.`lines` (order_id BIGINT, line INT, amount DECIMAL(10,2), note TEXT)",
    "ALTER TABLE shop.`lines` ADD PRIMARY KEY (order_id, line)",
    "INSERT INTO shop.orders VALUES (1, 'one', 1.25), (2, 'two', NULL), (3, NULL, 3.75), (4, 'four', 4)",
    "UPDATE shop.orders SET price = price + 1 WHERE id IN (1, 2)",
    "DELETE FROM shop.orders WHERE id = 4",
    "INSERT INTO shop.orders VALUES (4, 'four again', NULL), (5, 'füñf', 5)",
    "UPDATE shop.orders SET id = 50, price = NULL WHERE id = 5",
)


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = (
        CONFIGURATION
        | tables
        | {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
    )
    replaced = {
        '"db1"': f'"{primary.host}:{primary.port}"',
        "/run/secrets/repl": str(secret),
        "/lake": str(folder / "lake"),
        "/checkpoints": str(folder / "checkpoints"),
        "sc://spark-server:15002": f"sc://127.0.0.1:{port}",
    }
    with Workbench(settings, folder, replaced) as bench:
        bench.recipe("source")
        yield bench
