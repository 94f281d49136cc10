"""The real pt-online-schema-change on a table that is written, under a running mirror: equal behind it."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.test_resync import START, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

TOOL = "pt-online-schema-change"
CHANGES = (
    "UPDATE shop.orders SET v = v + 1 WHERE id BETWEEN {first} AND {first} + 9",
    "DELETE FROM shop.orders WHERE id = {first}",
    "REPLACE INTO shop.orders (id, name, v) VALUES ({first}, 'new', 0), ({first} + 3000, 'more', 1)",
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which(TOOL) is None, reason="needs Debian's percona-toolkit"),
]


def write(primary: MariaDb, seed: int, ended: threading.Event) -> None:
    """Change rows, a transaction at a time, until the end."""
    chosen = random.Random(seed)
    with primary.connect(database="shop") as connection, connection.cursor() as cursor:
        while not ended.wait(0.01):
            cursor.execute("BEGIN")
            for _ in range(3):
                cursor.execute(chosen.choice(CHANGES).format(first=chosen.randrange(3000)))
            cursor.execute("COMMIT")


def change_online(primary: MariaDb, alter: str) -> None:
    place = f"h={primary.host},P={primary.port},D=shop,t=orders,u=tool,p=tool-secret"
    options = ("--execute", "--chunk-size", "300", "--recursion-method", "none", "--alter-foreign-keys-method", "none")
    done = subprocess.run(
        [TOOL, "--alter", alter, *options, place], capture_output=True, text=True, timeout=300, check=False
    )
    assert "Successfully altered" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.quick_on("newest")
def test_a_table_that_the_tool_swaps_under_load_ends_equal(
    server_version: str, mirrored: Callable[..., Mirrored]
) -> None:
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        primary.sql(
            "CREATE USER tool@'%' IDENTIFIED BY 'tool-secret'",
            "GRANT ALL ON *.* TO tool@'%'",
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(20), v INT NOT NULL)",
            "INSERT INTO orders SELECT seq, CONCAT('row ', seq), seq FROM seq_1_to_3000",
        )
        mirror = mirrored(primary, "shop")
        mirror.run()
        bench = mirror.workbench
        bench.run(WAIT.format(control=f"{mirror.lake}.mirror_control"))
        bench.run(START.format(arguments=mirror.arguments | {"trigger": None}))
        ended = threading.Event()
        writer = threading.Thread(target=write, args=(primary, 1, ended))
        writer.start()
        try:
            change_online(primary, "ADD COLUMN extra INT NOT NULL DEFAULT 7, MODIFY v BIGINT NOT NULL")
            change_online(primary, "DROP COLUMN name, ADD INDEX (v)")
        finally:
            ended.set()
            writer.join()
        bench.run("wait({'orders': 'current'})")
        bench.run("query.stop()")
        mirror.run()
        mirror.run()
        mirror.assert_equal("orders")
        assert mirror.states() == {"orders": ("current", None)}
        names = bench.run(f"result = spark.table('{mirror.lake}.orders').columns")
        assert names == ["id", "v", "extra"]
