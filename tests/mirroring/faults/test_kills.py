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


def write_equal_rows(primary: MariaDb, seed: int, ended: threading.Event) -> None:
    """Transactions over tables whose rows come several times each, now and then a TRUNCATE, until the end."""
    chosen = random.Random(seed)
    with primary.connect(database="shop") as connection, connection.cursor() as cursor:
        while not ended.wait(0.05):
            cursor.execute("BEGIN")
            for table in TABLES:
                old, new, more, text = (chosen.randrange(20) for _ in range(4))
                told = f"NULLIF({text % 3}, 0)"
                cursor.execute(f"INSERT INTO shop.{table} SELECT {new}, {told} FROM seq_1_to_{1 + more}")
                cursor.execute(f"DELETE FROM shop.{table} WHERE v = {old} LIMIT {more}")
                cursor.execute(f"UPDATE shop.{table} SET v = {text}, t = {told} WHERE v = {more} LIMIT {new}")
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


@pytest.mark.parametrize("keyed", [True, False])
def test_a_killed_driver_loses_and_doubles_nothing(
    server_version: str,
    tmp_path: Path,
    keyed: bool,  # noqa: FBT001
) -> None:
    chosen = random.Random(server_version)
    with MariaDb(server_version) as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop")
        for table in TABLES:
            columns = "id INT PRIMARY KEY, v INT NOT NULL" if keyed else "v INT"
            primary.sql(f"CREATE TABLE shop.{table} ({columns}, t VARCHAR(20))")
            first = "seq, 0, 'first'" if keyed else "seq % 20, NULLIF(seq % 3, 0)"
            primary.sql("USE shop", f"INSERT INTO {table} SELECT {first} FROM seq_1_to_3000")
        ended = threading.Event()
        written = write if keyed else write_equal_rows
        writer = threading.Thread(target=written, args=(primary, chosen.randrange(1000), ended))
        # The catalog of such a session ends with it: targets are folders.
        options: dict[str, object] = {"into": f"{tmp_path}/lake/{{table}}", "snapshotChunkRows": 700}
        if not keyed:  # such a table is read while no one changes it
            options["snapshotUnkeyed"] = "whole"
            run_to_the_end(primary, tmp_path, "first", options)
        writer.start()
        try:
            for number in range(KILLS):
                with Workbench(spark_settings(tmp_path), folder(tmp_path, f"driver{number}"), {}) as bench:
                    mirror = Mirrored(bench, primary, "shop", tmp_path, {**options, "maxBytesPerTrigger": "100k"})
                    asked = (bench, tmp_path / "lake", chosen.uniform(0, 3))
                    killing = threading.Thread(target=kill_in_a_batch, args=asked)
                    killing.start()
                    with pytest.raises(AssertionError, match="the Spark driver has ended with -9"):
                        mirror.run(trigger=None)
                    killing.join()
        finally:
            ended.set()
            writer.join()
        run_to_the_end(primary, tmp_path, "last", options)


def run_to_the_end(primary: MariaDb, tmp_path: Path, name: str, options: dict[str, object]) -> None:
    """Bring in all that there is, by a driver of its own, and compare."""
    with Workbench(spark_settings(tmp_path), folder(tmp_path, name), {}) as bench:
        mirror = Mirrored(bench, primary, "shop", tmp_path, options)
        mirror.run()
        mirror.assert_equal(*TABLES)
        assert mirror.states() == dict.fromkeys(TABLES, ("current", None))


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made
