"""The real pt-online-schema-change and gh-ost on a table that is read and written, under a running mirror: equal behind
it.
"""

from __future__ import annotations

import random
import subprocess
import threading
from typing import TYPE_CHECKING

import pymysql
import pytest
from pymysql.constants import ER

from tests.fixtures.installation import CACHE, PROJECT
from tests.fixtures.mariadb import MariaDb
from tests.mirroring.operations.test_resnapshot import START, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

ROWS = 20_000
CHANGES = (
    "UPDATE shop.orders SET v = v + 1 WHERE id BETWEEN {first} AND {first} + 9",
    "DELETE FROM shop.orders WHERE id = {first}",
    "REPLACE INTO shop.orders (id, v) VALUES ({first}, 0), ({first} + 30000, 1)",
)
ALTERS = ("ADD COLUMN extra INT NOT NULL DEFAULT 7, MODIFY v BIGINT NOT NULL", "DROP COLUMN name, ADD INDEX (v)")
BEGUN = """
import time
end = time.monotonic() + 300
while not spark.catalog.tableExists({control!r}):
    assert query.isActive, query.exception()
    assert time.monotonic() < end, "no first batch"
    time.sleep(0.3)
"""
AUDIT = """
from streaming_source import audit
found = audit(spark, mirror={control!r}, **{server!r})
result = [[[one.table, one.equal, one.source_rows] for one in found.tables], [one.reason for one in found.left_out]]
"""

PACKAGES = {"pt-online-schema-change": "percona-toolkit", "gh-ost": "gh-ost"}
PLACES_FROM = (11, 7)
"""From here on events inside of a transaction have no place of their own, which gh-ost needs."""

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=["pt-online-schema-change", "gh-ost"])
def tool(request: pytest.FixtureRequest) -> Path:
    """One of the tools, as Debian ships it or as Go builds it; without these there is nothing to try."""
    name: str = request.param
    package = PACKAGES[name]
    done = subprocess.run(
        [PROJECT / "scripts" / f"get-{package}", CACHE / package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{name} cannot be had here: {done.stderr.strip()[-200:]}")
    return CACHE / package / name


def write(primary: MariaDb, ended: threading.Event) -> None:
    """Change rows, a transaction at a time, until the end; one that met the tool's locks is rolled back, and lost."""
    chosen = random.Random(1)
    with primary.connect(database="shop") as connection, connection.cursor() as cursor:
        while not ended.wait(0.01):
            try:
                cursor.execute("BEGIN")
                for _ in range(3):
                    cursor.execute(chosen.choice(CHANGES).format(first=chosen.randrange(ROWS)))
                cursor.execute("COMMIT")
            except pymysql.OperationalError as error:
                if error.args[0] not in {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}:
                    raise
                connection.rollback()


def change_online(tool: Path, primary: MariaDb, alter: str) -> None:
    if tool.name == "gh-ost":
        at = (f"--host={primary.host}", f"--port={primary.port}", "--user=tool", "--password=tool-secret")
        of = (
            "--database=shop",
            "--table=orders",
            f"--alter={alter}",
            f"--serve-socket-file={primary.folder}/gh-ost.sock",
        )
        how = ("--execute", "--allow-on-master", "--assume-rbr", "--ok-to-drop-table", "--chunk-size=1000", "--verbose")
        words, done_word = (*at, *of, *how), "Done migrating"
    else:
        place = f"h={primary.host},P={primary.port},D=shop,t=orders,u=tool,p=tool-secret"
        how = ("--execute", "--chunk-size=1000", "--recursion-method=none", "--no-version-check")
        words, done_word = (f"--alter={alter}", *how, place), "Successfully altered"
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=600, check=False)
    assert done_word in done.stdout + done.stderr, done.stdout[-2000:] + done.stderr[-2000:]


def places_option(version: str) -> list[str]:
    """Return the option with which a server gives each event its place."""
    numbers = tuple(map(int, version.split(".")[:2]))
    return ["--binlog-legacy-event-pos=1"] if numbers >= PLACES_FROM else []


@pytest.mark.quick_on("ends")
@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_a_table_that_the_tool_swaps_under_load_ends_equal(
    server_version: str, metadata: str, tool: Path, mirrored: Callable[..., Mirrored]
) -> None:
    places = places_option(server_version) if tool.name == "gh-ost" else []
    with MariaDb(server_version, f"--binlog-row-metadata={metadata}", *places) as primary:
        primary.add_user()
        primary.sql(
            "CREATE USER tool@'%' IDENTIFIED BY 'tool-secret'",
            "GRANT ALL ON *.* TO tool@'%'",
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(20) DEFAULT 'new', v INT NOT NULL)",
            f"INSERT INTO orders SELECT seq, CONCAT('row ', seq), seq FROM seq_1_to_{ROWS}",
        )
        mirror = mirrored(primary, "shop", snapshotChunkRows=1000)
        bench, control = mirror.workbench, f"{mirror.lake}.mirror_control"
        ended = threading.Event()
        writer = threading.Thread(target=write, args=(primary, ended))
        writer.start()
        try:
            bench.run(START.format(arguments=mirror.arguments | {"trigger": None}))
            bench.run(BEGUN.format(control=control))
            change_online(tool, primary, ALTERS[0])  # while the table's first rows are being read
            bench.run(WAIT.format(control=control))
            bench.run("wait({'orders': 'current'})")
            change_online(tool, primary, ALTERS[1])
        finally:
            ended.set()
            writer.join()
        bench.run("wait({'orders': 'current'})")
        bench.run("query.stop()")
        mirror.run()
        mirror.assert_equal("orders")
        assert mirror.states() == {"orders": ("current", None)}
        assert bench.run(f"result = spark.table('{mirror.lake}.orders').columns") == ["id", "v", "extra"]
        server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
        audited, left_out = bench.run(AUDIT.format(control=control, server=server))
        assert audited == [["shop.orders", True, len(mirror.source("orders"))]], audited
        assert not left_out
