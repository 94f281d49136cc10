"""Tables read while something goes wrong: connections end, rows grow, the disk is small; and many tables."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import AuthenticationError, DiskFullError, PrerequisiteError
from replica.options.config import ReplicaConfig
from replica.snapshot import errors as reading_errors
from replica.snapshot.check.catalog import describe_table, list_tables
from replica.snapshot.chunks import names as followed_names
from replica.snapshot.chunks.schedule import ReadLimit
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.frontier import Frontier
from replica.snapshot.pace import Pace
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.integration.snapshot.kit.table_reading import TableReading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pymysql

    from replica.snapshot.connection.connection import SnapshotConnection

pytestmark = pytest.mark.server

TABLES = {("d", "a"): ("id",), ("d", "b"): ("id",)}
READERS = "SELECT id FROM information_schema.processlist WHERE user = 'repl' AND command <> 'Binlog Dump'"


@pytest.fixture(scope="module")
def running() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--binlog-row-metadata=FULL") as server:
        yield server


@pytest.fixture
def server(running: MariaDb) -> MariaDb:
    running.sql("DROP DATABASE IF EXISTS d")
    running.reset_master()
    running.sql(
        "CREATE DATABASE d",
        "USE d",
        "CREATE TABLE d.a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE d.b (id INT PRIMARY KEY, v VARCHAR(2000))",
        "INSERT INTO d.a SELECT seq, seq FROM seq_1_to_3000",
        "INSERT INTO d.b SELECT seq, REPEAT('x', 1500) FROM seq_1_to_2000",
    )
    return running


def test_the_names_are_asked_for_again_where_the_connection_ends(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def lost_once(connection: SnapshotConnection, wanted: Callable[[tuple[str, str]], bool]) -> object:
        asked.append(connection)
        if len(asked) == 1:
            connection.close()
        return list_tables(connection, wanted)

    monkeypatch.setattr(followed_names, "list_tables", lost_once)
    with TableReading(server, tmp_path, TABLES) as reading:
        reading.to_the_end()
    assert len(asked) >= 2
    assert reading.delivered == {("d", "a"): 3000, ("d", "b"): 2000}


def test_connections_that_end_are_made_again(server: MariaDb, tmp_path: Path) -> None:
    ending, killed = threading.Event(), []

    def kill() -> None:
        while not ending.wait(0.05):
            for (connection,) in server.sql(READERS):
                try:
                    server.sql(f"KILL {connection}")
                    killed.append(connection)
                except Exception as error:  # noqa: BLE001  (it has ended by itself)
                    assert error.args[0] == 1094  # noqa: PT017

    pace = Pace(connections=2, chunk_rows=200)
    with TableReading(server, tmp_path, TABLES, pace=pace, backoff_initial="50ms", backoff_max="100ms") as reading:
        thread = threading.Thread(target=kill)
        thread.start()
        try:
            wait_until(lambda: len(killed) > 20, "connections were ended")
            wait_until(lambda: reading.step(ReadLimit(rows=200)), "rows come nevertheless")
        finally:
            ending.set()
            thread.join()
        reading.to_the_end()
    assert reading.delivered == {("d", "a"): 3000, ("d", "b"): 2000}


def test_rows_that_are_wider_than_was_thought_end_a_chunk_early(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE TABLE d.w (id INT PRIMARY KEY, v LONGTEXT)")
    server.sql("INSERT INTO d.w SELECT seq, IF(seq <= 2000, 'x', REPEAT('y', 100000)) FROM d.seq_1_to_2100")
    tables = {**TABLES, ("d", "w"): ("id",)}
    pace = Pace(connections=1, chunk_bytes=1 << 20)
    with TableReading(server, tmp_path, tables, pace=pace, caught_up=True) as reading:
        reading.to_the_end()
        assert reading.snapshot.progress().rows == 7100
    assert reading.delivered["d", "w"] == 2100
    assert len(reading.batches) > 1


def test_rows_wait_for_room_and_what_does_not_fit_at_all_is_an_error(server: MariaDb, tmp_path: Path) -> None:
    pace = Pace(connections=1, chunk_rows=200, chunk_bytes=400_000, spool_bytes=2_000_000)
    with TableReading(server, tmp_path / "small", TABLES, pace=pace) as reading:
        reading.to_the_end(limit=ReadLimit(rows=200))
    assert reading.delivered == {("d", "a"): 3000, ("d", "b"): 2000}
    pace = Pace(connections=1, chunk_rows=2000, spool_bytes=100_000)
    with (
        TableReading(server, tmp_path / "none", TABLES, pace=pace) as reading,
        pytest.raises(DiskFullError, match="do not fit into"),
    ):
        reading.to_the_end()
    assert list((tmp_path / "none" / "spool").iterdir()) == []


def test_a_table_that_the_account_may_not_read_is_named(server: MariaDb, tmp_path: Path) -> None:
    with TableReading(server, tmp_path, TABLES) as reading:
        reading.end()
        server.sql("REVOKE SELECT ON *.* FROM 'repl'@'%'", "GRANT SELECT ON d.b TO 'repl'@'%'")
        server.sql("GRANT INSERT ON d.a TO 'repl'@'%'")
        reading.frontier = Frontier()
        reading.begin()
        with pytest.raises(AuthenticationError, match=r"table d\.a cannot be read: .* denied"):
            reading.to_the_end()


def test_a_table_that_the_account_may_not_read_any_more_is_left_out_where_each_table_is_followed(
    server: MariaDb, tmp_path: Path
) -> None:
    with TableReading(server, tmp_path, TABLES, pace=Pace(table_by_table=True)) as reading:
        reading.end()
        server.sql("REVOKE SELECT ON *.* FROM 'repl'@'%'", "GRANT SELECT ON d.b TO 'repl'@'%'")
        server.sql("GRANT INSERT ON d.a TO 'repl'@'%'")
        reading.frontier = Frontier()
        reading.begin()
        ((name, why),) = reading.to_the_end_without()
    assert name == ("d", "a")
    assert re.match(r"table d\.a cannot be read: .* denied", why)
    assert reading.frontier.rows == 2000, "the other table is there as a whole"


@pytest.fixture
def locked(server: MariaDb) -> Iterator[pymysql.Connection[Any]]:
    """The first table, which a connection holds."""
    with server.connect() as connection:
        connection.cursor().execute("LOCK TABLES d.a WRITE")
        yield connection


def test_a_table_behind_a_lock_lets_the_others_pass(
    server: MariaDb, tmp_path: Path, locked: pymysql.Connection[Any]
) -> None:
    with TableReading(server, tmp_path, TABLES, pace=Pace(connections=1, lock_wait_s=1)) as reading:
        wait_until(lambda: reading.step() and reading.delivered.get(("d", "b")) == 2000, "the other table is read")
        wait_until(
            lambda: reading.snapshot.progress().waits_for == "a wait for a lock timed out", "it says what it waits for"
        )
        assert not reading.delivered[("d", "a")]
        locked.cursor().execute("UNLOCK TABLES")
        reading.to_the_end()
    assert reading.delivered == {("d", "a"): 3000, ("d", "b"): 2000}


@pytest.mark.usefixtures("locked")
def test_a_table_behind_a_lock_that_no_one_lets_go_is_left_out_where_each_table_is_followed(
    server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_errors, "SAME_ERROR", 2)
    pace = Pace(lock_wait_s=1, table_by_table=True)
    with TableReading(server, tmp_path, TABLES, pace=pace) as reading:
        ((name, why),) = reading.to_the_end_without()
    assert name == ("d", "a")
    assert re.match(r"while reading table d\.a: .*Lock wait timeout exceeded", why)
    assert reading.frontier.rows == 2000, "the other table is there as a whole"


def test_a_table_that_is_hidden_from_the_account_is_not_taken_for_one_that_was_dropped(server: MariaDb) -> None:
    server.sql("CREATE USER shy IDENTIFIED BY 'replica-secret'")
    server.sql(*(f"GRANT SELECT ON d.{table} TO shy" for table in "ab"))
    config = ReplicaConfig(host=server.host, port=server.port, user="shy", password="replica-secret")
    connection = TableConnection.open(config, None)
    try:
        server.sql("DROP TABLE d.b")
        assert describe_table(connection, ("d", "b")) is None
        assert describe_table(connection, ("d", "a")) is not None
        server.sql("REVOKE SELECT ON d.a FROM shy")
        with pytest.raises(AuthenticationError, match=r"table d\.a cannot be read: the account has no SELECT on it"):
            describe_table(connection, ("d", "a"))
    finally:
        connection.close()


def test_a_table_whose_definition_is_damaged_is_refused_with_what_the_server_says(server: MariaDb) -> None:
    server.sql("CREATE TABLE d.away (id INT PRIMARY KEY) ENGINE=MyISAM", "FLUSH TABLES d.away")
    (server.datadir / "d" / "away.frm").write_bytes(bytes(100))
    user, password = server.add_user()
    config = ReplicaConfig(host=server.host, port=server.port, user=user, password=password)
    connection = TableConnection.open(config, None)
    try:
        with pytest.raises(PrerequisiteError, match=r"d\.away cannot be read: the server cannot open it: .*away"):
            describe_table(connection, ("d", "away"), unkeyed=True)
    finally:
        connection.close()
        for file in (server.datadir / "d").glob("away.*"):  # no DROP removes it
            file.unlink()


def test_many_tables_are_read_in_the_order_of_their_names_and_the_frontier_stays_short(
    server: MariaDb, tmp_path: Path
) -> None:
    names = [f"t{number}" for number in range(300)] + ["Z", "ä"]
    server.sql(*(f"CREATE TABLE d.`{name}` (id INT PRIMARY KEY, v INT)" for name in names))
    server.sql(*(f"INSERT INTO d.`{name}` VALUES (1, 1), (2, 2)" for name in names))
    tables = TABLES | {("d", name): ("id",) for name in names}
    sizes = []
    with TableReading(server, tmp_path, tables) as reading:
        reading.judge = lambda before, after, v: sizes.append(len(str(after.json())))  # type: ignore[method-assign]  # noqa: ARG005
        reading.to_the_end()
        assert reading.snapshot.progress().tables_done == 304
    assert reading.frontier.rows == 5000 + 2 * 302
    assert max(sizes) < 1000
