"""Changes that were logged as statements, without rows: a mirror reads the tables again that they are about."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

TABLES = (
    "CREATE DATABASE shop",
    "USE shop",
    "CREATE TABLE orders (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE items (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE other (id INT PRIMARY KEY, v INT)",
    "CREATE VIEW cheap AS SELECT * FROM items WHERE v < 20",
    "CREATE FUNCTION bump() RETURNS INT DETERMINISTIC BEGIN UPDATE other SET v = v + 1; RETURN 1; END",
    *(f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_50" for table in ("orders", "items", "other")),
)
NAMES = ("orders", "items", "other")
STATEMENT = "SET SESSION binlog_format = STATEMENT"


def read_again(mirror: Mirrored, seen: dict[str, int]) -> set[str]:
    """Return the tables whose targets were made again since the last call, and note it in `seen`."""
    made = {name: mirror.times_made(name) for name in NAMES}
    again = {name for name, times in made.items() if times > seen.get(name, 1)}
    seen |= made
    return again


@pytest.mark.parametrize("version", ["10.5", "11.8"])
def test_tables_are_read_again_behind_changes_without_rows(version: str, mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb(version) as primary:
        primary.add_user()
        primary.sql(*TABLES)
        mirror = mirrored(primary, "shop")
        seen: dict[str, int] = {}
        mirror.run()
        assert read_again(mirror, seen) == set()
        changes = {
            "orders": ("UPDATE orders SET v = -1 WHERE id < 9", "INSERT INTO other VALUES (60, 1)"),
            "items": ("UPDATE cheap SET v = v + 100 WHERE id < 5",),
            "other": ("SELECT bump()",),
        }
        # One table is named, and a row that was logged as such goes in as ever.
        primary.sql(
            "USE shop", STATEMENT, changes["orders"][0], "SET SESSION binlog_format = ROW", changes["orders"][1]
        )
        mirror.run()
        mirror.assert_equal(*NAMES)
        assert read_again(mirror, seen) == {"orders"}
        # In a transaction of both kinds; the rows before and behind it, too.
        primary.sql(
            "USE shop",
            "INSERT INTO items VALUES (70, 1)",
            "SET SESSION binlog_format = MIXED",
            "BEGIN",
            "UPDATE items SET v = 7 + 0 * LENGTH(UUID()) WHERE id = 70",  # logged as a row
            "DELETE FROM items WHERE id BETWEEN 10 AND 20",
            "COMMIT",
            "SET SESSION binlog_format = ROW",
            "INSERT INTO items VALUES (71, 1)",
        )
        mirror.break_off()
        mirror.run()
        mirror.assert_equal(*NAMES)
        assert read_again(mirror, seen) == {"items"}
        # Through a view, and by a function: which table it was, the text does not tell.
        for change in (*changes["items"], *changes["other"]):
            primary.sql("USE shop", STATEMENT, change)
            mirror.run()
            mirror.assert_equal(*NAMES)
            assert read_again(mirror, seen) == set(NAMES), change
        # In an XA transaction, which is committed behind a restart of the mirror.
        with primary.connect(database="shop") as connection, connection.cursor() as cursor:
            for text in (STATEMENT, "XA START 'x'", "INSERT INTO items VALUES (80, 8)", "XA END 'x'", "XA PREPARE 'x'"):
                cursor.execute(text)
            primary.sql("INSERT INTO shop.orders VALUES (80, 8)")
            mirror.run()
            assert read_again(mirror, seen) == set()
            cursor.execute("XA COMMIT 'x'")
        mirror.run()
        mirror.assert_equal(*NAMES)
        assert read_again(mirror, seen) == {"items"}
        primary.sql("USE shop", STATEMENT, "CREATE TABLE made (id INT PRIMARY KEY) SELECT id FROM orders")
        mirror.run()
        mirror.assert_equal(*NAMES, "made")
        assert mirror.states() == dict.fromkeys([*NAMES, "made"], ("current", None))


def test_on_swap_stop_sets_the_table_aside(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql(*TABLES)
        mirror = mirrored(primary, "shop", onSwap="stop")
        mirror.run()
        primary.sql("USE shop", "INSERT INTO items VALUES (70, 1)", STATEMENT, "UPDATE orders SET v = 0 WHERE id = 1")
        mirror.run()
        mirror.assert_equal("items", "other")
        state, error = mirror.states()["orders"]
        assert state == "failed"
        assert "logged without the rows" in str(error)
        assert "onSwap=stop" in str(error)


def test_a_table_that_is_changed_so_while_it_is_read_ends_equal(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql(*TABLES, "INSERT INTO shop.orders SELECT seq, seq FROM seq_100_to_30000")
        mirror = mirrored(primary, "shop", snapshotChunkRows=500, maxRowsPerTrigger=4000)
        ended = threading.Event()

        def write() -> None:
            for _ in range(8):
                ended.wait(1.5)
                primary.sql("USE shop", STATEMENT, "UPDATE orders SET v = v + 1 WHERE id % 7 = 0")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            mirror.run()
        finally:
            ended.set()
            writer.join()
        mirror.run()
        mirror.assert_equal(*NAMES)
