"""One Spark session and one primary for all tests that do not need their own.

The session is local[2] with unix sockets to Python, and without the forked `readlink`s that Spark does per checkpoint
file. The primary logs column names; each test has a database of its own on it and starts behind what others wrote.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from streaming_source.mirroring.apply.parallel_applier import INTERPRETED
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.spark_home import spark_python
from tests.spark.queries import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # Most queries here run for a second or two: compiling them well would take longer than running them. The compiler
    # that is left has room for 48 MB by itself, which the plans fill: then code is thrown out and compiled again.
    # Plans are interpreted for the same reason.
    # And a query that is stopped inside of foreachBatch needs a large stack: see docs/spark.md.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xss16m -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    **INTERPRETED,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Spark's Python processes are new interpreters: they need ours, and the tree under test.
    os.environ["PYSPARK_PYTHON"] = spark_python()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    builder = SparkSession.builder.master("local[2]").appName("mariadb-binlog tests")
    for key, value in CONFIGURATION.items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as patch:
        # Queries without a relayDir name theirs by host and port, and another run's server may have had the same port.
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(scope="session")
def primary() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        # Two domains from the start: what a test finds must not depend on which files ran before it in its process.
        running.sql("SET gtid_domain_id = 3", "CREATE DATABASE elsewhere")
        yield running


@pytest.fixture
def shop(spark: SparkSession, primary: MariaDb, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A database of the test's own with a table `orders`, and queries over it."""
    name = "shop_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50].lower()
    with Shop(spark, primary, name, tmp_path) as shop:
        yield shop
