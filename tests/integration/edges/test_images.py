"""Edge cases 36-41: what row images hold, and changes that are no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pymysql
import pytest

from replica.protocol.events.decode import QueryEvent
from replica.protocol.rows.rows_event import RowsEvent
from tests.fixtures.mariadb import MariaDb
from tests.integration.commands.dump_agreement import check_binlogs
from tests.integration.edges.log import Log, log_of, version

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(server_version: str) -> Iterator[MariaDb]:
    """In the end, what the tests have written is what mariadb-binlog -vv reads, row by row and value by value."""
    with MariaDb(server_version) as running:
        yield running
        check_binlogs(running)


def present(log: Log) -> list[tuple[int | None, int | None]]:
    """Per rows event the columns in the before and in the after image, as bits (10.5 sets those beyond the width)."""

    def bits(columns: bytes | None, width: int) -> int | None:
        return None if columns is None else int.from_bytes(columns, "little") & (1 << width) - 1

    return [
        (bits(event.columns_before, event.width), bits(event.columns_after, event.width))
        for event in log.events(RowsEvent)
    ]


CHANGES = ("INSERT INTO a (id, n) VALUES (1, 1)", "UPDATE a SET n = NULL WHERE id = 1", "UPDATE a SET id = 2")
TABLES = {
    "primary": "CREATE TABLE a (id INT PRIMARY KEY, n INT, b BLOB)",
    "unique": "CREATE TABLE a (id INT NOT NULL UNIQUE, n INT, b BLOB)",
    "none": "CREATE TABLE a (id INT, n INT, b BLOB)",
}


@pytest.mark.edge(36)
@pytest.mark.parametrize("key", list(TABLES))
@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_images_of_part_of_the_row(server: MariaDb, image: str, key: str) -> None:
    log = log_of(server, *CHANGES, before=[TABLES[key], f"SET SESSION binlog_row_image = {image}"])
    changes = log.changes("a")
    assert [change.op for change in changes] == ["insert", "update", "update"]
    assert [change.after and change.after["n"] for change in changes][:2] == [1, None]
    bits = present(log)
    if key == "none":
        assert bits[1:] == [(0b111, 0b111)] * 2, "without a key nothing less identifies the row"
    elif image == "MINIMAL":
        assert bits[1:] == [(0b001, 0b010), (0b001, 0b001)]
    else:
        assert bits[1:] == [(0b011, 0b011)] * 2


@pytest.mark.edge(36)
def test_full_nodup(server: MariaDb) -> None:
    if version(server) < (11, 4):
        with pytest.raises(pymysql.err.OperationalError, match="FULL_NODUP"):
            server.sql("SET SESSION binlog_row_image = FULL_NODUP")
        return
    log = log_of(server, *CHANGES, before=[TABLES["primary"], "SET SESSION binlog_row_image = FULL_NODUP"])
    assert present(log)[1:] == [(0b111, 0b010), (0b111, 0b001)]
    assert [change.before for change in log.changes("a")] == [
        None,
        {"id": 1, "n": 1, "b": None},
        {"id": 1, "n": None, "b": None},
    ]


@pytest.mark.edge(37)
def test_replace_and_on_duplicate_key(server: MariaDb) -> None:
    log = log_of(
        server,
        "REPLACE INTO a VALUES (1, 2)",
        "INSERT INTO a VALUES (1, 3) ON DUPLICATE KEY UPDATE n = 30",
        "REPLACE INTO parent VALUES (1, 2)",
        before=[
            "CREATE TABLE a (id INT PRIMARY KEY, n INT)",
            "INSERT INTO a VALUES (1, 1)",
            "CREATE TABLE parent (id INT PRIMARY KEY, n INT)",
            "CREATE TABLE child (id INT, FOREIGN KEY (id) REFERENCES parent (id))",
            "INSERT INTO parent VALUES (1, 1)",
        ],
    )
    assert [(c.op, c.before, c.after) for c in log.changes("a")] == [
        ("update", {"id": 1, "n": 1}, {"id": 1, "n": 2}),
        ("update", {"id": 1, "n": 2}, {"id": 1, "n": 30}),
    ]
    assert [(c.op, c.before, c.after) for c in log.changes("parent")] == [
        ("delete", {"id": 1, "n": 1}, None),
        ("insert", None, {"id": 1, "n": 2}),
    ]


@pytest.mark.edge(38)
def test_generated_and_invisible_columns_are_there(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (id INT, twice INT AS (id * 2) VIRTUAL, thrice INT AS (id * 3) PERSISTENT, "
        "quiet INT INVISIBLE DEFAULT 9)",
        "INSERT INTO a (id) VALUES (1)",
    )
    assert [change.after for change in log.changes("a")] == [{"id": 1, "twice": 2, "thrice": 3, "quiet": 9}]


@pytest.mark.edge(39)
def test_system_versioned_tables(server: MariaDb) -> None:
    log = log_of(
        server,
        "CREATE TABLE a (id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING",
        "INSERT INTO a VALUES (1, 10)",
        "UPDATE a SET n = 11",
        "DELETE FROM a",
    )
    changes = log.changes("a")
    assert [change.op for change in changes] == ["insert", "update", "insert", "update"]
    insert, update, history, delete = (change.after or {} for change in changes)
    forever = insert["row_end"]
    assert forever == ("2106-02-07 06:28:15.999999" if version(server) >= (11, 5) else "2038-01-19 03:14:07.999999")
    assert (update["n"], update["row_end"]) == (11, forever)
    assert (history["n"], history["row_start"]) == (10, insert["row_start"])
    assert history["row_end"] == update["row_start"]
    assert delete["row_end"] < forever


@pytest.mark.edge(40)
def test_cascades_are_not_logged(server: MariaDb) -> None:
    log = log_of(
        server,
        "DELETE FROM parent",
        before=[
            "CREATE TABLE parent (id INT PRIMARY KEY)",
            "CREATE TABLE child (id INT, FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE)",
            "INSERT INTO parent VALUES (1)",
            "INSERT INTO child VALUES (1)",
        ],
    )
    assert [change.op for change in log.changes("parent")] == ["delete"]
    assert len(log.events(RowsEvent)) == 1
    assert server.sql("SELECT * FROM edge.child") == []


@pytest.mark.edge(41)
def test_truncate_is_a_statement(server: MariaDb) -> None:
    log = log_of(server, "TRUNCATE TABLE a", before=["CREATE TABLE a (id INT)", "INSERT INTO a VALUES (1)"])
    assert log.events(RowsEvent) == []
    assert [event.query for event in log.events(QueryEvent)] == [b"TRUNCATE TABLE a"]
