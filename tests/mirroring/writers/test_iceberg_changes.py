"""format="iceberg": tables without a key, foreign keys, types that Iceberg cannot widen, DROP, and a killed driver."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.conftest import spark_settings
from tests.mirroring.faults.test_kills import TABLES, folder, write
from tests.mirroring.mirrors import Mirrored
from tests.mirroring.writers.test_iceberg import by_pyiceberg, rows_of, states, table_of
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def primary() -> Iterator[MariaDb]:
    with MariaDb("11.8", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        running.sql("CREATE DATABASE shop")
        yield running


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    return {"name": "lakehouse", "type": "sql", "uri": uri, "warehouse": warehouse}


def assert_equal(mirror: Mirrored, catalog: dict[str, str], table: str) -> None:
    rows = [list(row.values()) for row in by_pyiceberg(table_of(catalog, f"{mirror.lake}.{table}"))]
    assert sorted(rows, key=lambda row: [value or "" for value in row]) == mirror.source(table), table


def test_keyless_tables_cascades_and_types_follow_the_server(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored]
) -> None:
    primary.sql(
        "USE shop",
        "CREATE TABLE parent (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE keyless (a INT, b VARCHAR(9))",
        "CREATE TABLE typed (id INT PRIMARY KEY, `odd name.ü` INT, d DECIMAL(5,2), gone INT)",
        "INSERT INTO parent SELECT seq, seq FROM seq_1_to_20",
        "INSERT INTO child SELECT seq, 1 + seq % 20 FROM seq_1_to_100",
        "INSERT INTO keyless SELECT seq % 3, 'x' FROM seq_1_to_30",
        "INSERT INTO typed SELECT seq, seq, seq, seq FROM seq_1_to_10",
    )
    names = ("parent", "child", "keyless", "typed")
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog, snapshotUnkeyed="whole")
    mirror.run()
    for table in names:
        assert_equal(mirror, catalog, table)
    primary.sql(
        "USE shop",
        "DELETE FROM parent WHERE id < 4",
        "DELETE FROM keyless WHERE a = 1 LIMIT 4",
        "INSERT INTO keyless VALUES (NULL, NULL), (NULL, NULL), (2, 'x')",
        "UPDATE keyless SET b = 'y' WHERE a = 2 LIMIT 3",
        "ALTER TABLE typed MODIFY `odd name.ü` BIGINT, MODIFY d DECIMAL(9,2), DROP COLUMN gone",
        "ALTER TABLE typed ADD COLUMN gone VARCHAR(9) DEFAULT 'again'",
        "UPDATE typed SET d = 1234567.89, `odd name.ü` = 5000000000 WHERE id = 1",
    )
    mirror.break_off()
    mirror.run()
    assert states(mirror) == {table: ["current", None] for table in names}
    for table in names:
        assert_equal(mirror, catalog, table)
    assert len(rows_of(mirror, catalog, "typed")) == 10
    primary.sql("DROP TABLE shop.typed")
    mirror.run(onDrop="drop")
    assert states(mirror)["typed"][0] == "dropped"


def test_old_snapshots_expire_between_batches(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    primary.sql("USE shop", "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a SELECT seq, 0 FROM seq_1_to_9")
    kept = {"history.expire.max-snapshot-age-ms": "0"}
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog, tableProperties=kept)
    for number in range(4):
        primary.sql("USE shop", f"UPDATE a SET v = {number} WHERE id < 5", f"INSERT INTO a VALUES ({20 + number}, 1)")
        mirror.run()
        assert_equal(mirror, catalog, "a")
    assert states(mirror) == {"a": ["current", None]}
    (snapshot,) = table_of(catalog, f"{mirror.lake}.a").snapshots()
    control = table_of(catalog, f"{mirror.lake}.mirror_control")
    assert control.properties["history.expire.max-snapshot-age-ms"] == "3600000"
    tasks = table_of(catalog, f"{mirror.lake}.a").scan(snapshot_id=snapshot.snapshot_id).plan_files()
    files = {file.name for file in (tmp_path / "warehouse").glob("**/a/data/*.parquet")}
    assert files == {task.file.file_path.rpartition("/")[2] for task in tasks}


def commits(catalog: dict[str, str], lake: str) -> int:
    """How many snapshots all targets have together."""
    try:
        return sum(len(table_of(catalog, f"{lake}.{table}").snapshots()) for table in TABLES)
    except Exception:  # noqa: BLE001  (a table is not there yet)
        return 0


def test_a_killed_driver_loses_and_doubles_nothing(primary: MariaDb, catalog: dict[str, str], tmp_path: Path) -> None:
    chosen = random.Random(7)
    for table in TABLES:
        primary.sql(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT NOT NULL, t VARCHAR(20))")
        primary.sql("USE shop", f"INSERT INTO {table} SELECT seq, 0, 'first' FROM seq_1_to_3000")
    options: dict[str, object] = {"into": "lake.{table}", "format": "iceberg", "icebergCatalog": catalog}
    ended = threading.Event()
    writer = threading.Thread(target=write, args=(primary, 3, ended))
    writer.start()
    try:
        for number in range(2):
            with Workbench(spark_settings(tmp_path), folder(tmp_path, f"driver{number}"), {}) as bench:
                mirror = Mirrored(bench, primary, "shop", tmp_path, {**options, "maxBytesPerTrigger": "100k"})

                def kill(bench: Workbench = bench) -> None:
                    there = commits(catalog, "lake")
                    while commits(catalog, "lake") <= there and bench._driver.poll() is None:
                        time.sleep(0.1)
                    time.sleep(chosen.uniform(0, 2))
                    bench._driver.kill()

                killing = threading.Thread(target=kill)
                killing.start()
                with pytest.raises(AssertionError, match="the Spark driver has ended with -9"):
                    mirror.run(trigger=None)
                killing.join()
    finally:
        ended.set()
        writer.join()
    with Workbench(spark_settings(tmp_path), folder(tmp_path, "last"), {}) as bench:
        mirror = Mirrored(bench, primary, "shop", tmp_path, options)
        mirror.lake = "lake"
        mirror.run()
        for table in TABLES:
            assert_equal(mirror, catalog, table)
