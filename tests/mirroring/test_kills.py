"""A mirror whose driver is killed again and again while tables are read, written and emptied: equal at the end."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.conftest import spark_settings
from tests.mirroring.mirrors import Mirrored
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

KILLS = 3
TABLES = ("a", "b", "c")


def write(primary: MariaDb, seed: int, ended: threading.Event) -> None:
    """Transactions over all tables, now and then a TRUNCATE, until the end."""
    chosen = random.Random(seed)
    with primary.connect(database="shop") as connection, connection.cursor() as cursor:
        while not ended.wait(0.05):
            cursor.execute("BEGIN")
            for table in TABLES:
                first = chosen.randrange(3000)
                cursor.execute(f"DELETE FROM shop.{table} WHERE id BETWEEN {first} AND {first + 20}")
                cursor.execute(f"UPDATE shop.{table} SET v = v + 1 WHERE id BETWEEN {first + 40} AND {first + 90}")
                cursor.execute(f"REPLACE INTO shop.{table} SELECT seq, 0, 'new' FROM seq_{first}_to_{first + 9}")
            cursor.execute("COMMIT")
            if chosen.random() < 0.01:
                cursor.execute("TRUNCATE TABLE shop.c")


def versions(lake: Path) -> int:
    """How many commits all targets have together."""
    return sum(len(list(lake.glob(f"{table}/_delta_log/*[0-9].json"))) for table in TABLES)


def kill_in_a_batch(bench: Workbench, lake: Path, after: float) -> None:
    """Kill the driver some time after it has brought something into a target: others of the batch still wait."""
    there = versions(lake)
    while versions(lake) <= there and bench._driver.poll() is None:
        time.sleep(0.05)
    time.sleep(after)
    bench._driver.kill()


def test_a_killed_driver_loses_and_doubles_nothing(server_version: str, tmp_path: Path) -> None:
    chosen = random.Random(server_version)
    with MariaDb(server_version) as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for table in TABLES:
            primary.sql(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT NOT NULL, t VARCHAR(20))")
            primary.sql("USE shop", f"INSERT INTO {table} SELECT seq, 0, 'first' FROM seq_1_to_3000")
        ended = threading.Event()
        writer = threading.Thread(target=write, args=(primary, chosen.randrange(1000), ended))
        writer.start()
        # The catalog of such a session ends with it: targets are folders.
        folders = {"into": f"{tmp_path}/lake/{{table}}", "snapshotChunkRows": 700}
        try:
            for number in range(KILLS):
                folder = tmp_path / f"driver{number}"
                folder.mkdir()
                with Workbench(spark_settings(tmp_path), folder, {}) as bench:
                    mirror = Mirrored(bench, primary, "shop", tmp_path, {**folders, "maxBytesPerTrigger": "100k"})
                    asked = (bench, tmp_path / "lake", chosen.uniform(0, 3))
                    killing = threading.Thread(target=kill_in_a_batch, args=asked)
                    killing.start()
                    with pytest.raises(AssertionError, match="the Spark driver has ended with -9"):
                        mirror.run(trigger=None)
                    killing.join()
        finally:
            ended.set()
            writer.join()
        folder = tmp_path / "last"
        folder.mkdir()
        with Workbench(spark_settings(tmp_path), folder, {}) as bench:
            mirror = Mirrored(bench, primary, "shop", tmp_path, folders)
            mirror.run()
            mirror.assert_equal(*TABLES)
            assert mirror.states() == dict.fromkeys(TABLES, ("current", None))
