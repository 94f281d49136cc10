"""Connections that read tables, to real servers: rows byte for byte, snapshots, errors in the middle, and their end."""

from __future__ import annotations

import contextlib
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    AuthenticationError,
    DisconnectedError,
    PrerequisiteError,
    ReplicaError,
    ServerError,
)
from replica.protocol.packets.packets import MAX_PIECE, PacketSplitter
from replica.protocol.wire import Cursor
from replica.snapshot.connection.connection import TableConnection
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.options.config import ReplicaConfig

pytestmark = [pytest.mark.server, pytest.mark.quick_on("newest")]

ROWS = 20_000


@pytest.fixture(scope="module")
def source(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, "--max-allowed-packet=256M", tls=True) as server:
        server.sql(
            "CREATE DATABASE r",
            "CREATE TABLE r.t (id INT UNSIGNED PRIMARY KEY, n BIGINT, d DOUBLE, m DECIMAL(20,5), "
            "v VARCHAR(40) CHARACTER SET latin1, u VARCHAR(40) CHARACTER SET utf8mb4, b VARBINARY(40)) ENGINE=InnoDB",
            "INSERT INTO r.t SELECT seq, IF(seq % 7, -CAST(seq * 100003 AS SIGNED), NULL), seq / 3, "
            "IF(seq % 5, seq / 7, NULL), CONCAT('ü', REPEAT('v', seq % 30)), "
            f"CONCAT('€', seq), IF(seq % 3, UNHEX(MD5(seq)), NULL) FROM r.seq_1_to_{ROWS}",
            "CREATE TABLE r.small (id INT PRIMARY KEY, x INT) ENGINE=InnoDB",
            "INSERT INTO r.small VALUES (1, 1)",
        )
        yield server


@pytest.fixture(scope="module")
def config(source: MariaDb) -> ReplicaConfig:
    return replica_config(source)


@contextlib.contextmanager
def opened(config: ReplicaConfig, **options: float) -> Iterator[TableConnection]:
    connection = TableConnection.open(config, config.endpoints[0], **options)
    with contextlib.closing(connection):
        yield connection


@pytest.fixture
def connection(config: ReplicaConfig) -> Iterator[TableConnection]:
    with opened(config) as connection:
        yield connection


def raw_rows(connection: TableConnection, sql: str) -> list[bytes]:
    rows: list[bytes] = []
    for stretch in connection.select(sql).stretches():
        data = stretch.data[stretch.start : stretch.end].tobytes()
        rows += [data] if stretch.joined else [bytes(row) for row in PacketSplitter().feed(data)]
    return rows


def values(row: bytes) -> list[object]:
    """The values of a row of r.t, as the binary protocol writes them."""
    cursor = Cursor(row)
    assert cursor.u8() == 0
    nulls = int.from_bytes(cursor.take((7 + 7 + 2) // 8), "little") >> 2

    def text() -> bytes:
        return bytes(cursor.take(cursor.lenenc()))

    readers: list[Callable[[], object]] = [
        cursor.u32,
        lambda: int.from_bytes(cursor.take(8), "little", signed=True),
        lambda: struct.unpack("<d", cursor.take(8))[0],
        *[text] * 4,
    ]
    found = [None if nulls >> at & 1 else read() for at, read in enumerate(readers)]
    assert not cursor
    return found


@pytest.mark.parametrize("way", ["plain", "compressed", "TLS", "compressed TLS"])
def test_rows_arrive_byte_for_byte(source: MariaDb, config: ReplicaConfig, way: str) -> None:
    assert source.certificates is not None
    tls = {"tls": "verify-identity", "tls_ca": source.certificates.ca} if "TLS" in way else {}
    with opened(replica_config(source, compress="compressed" in way, **tls)) as connection:
        stream = connection.select("SELECT id, n, d, m, v, u, b FROM r.t ORDER BY id")
        assert [(one.name, one.type, one.charset) for one in stream.columns] == [
            ("id", 3, 63),
            ("n", 8, 63),
            ("d", 5, 63),
            ("m", 246, 63),
            ("v", 253, 8),
            ("u", 253, stream.columns[5].charset),
            ("b", 253, 63),
        ]
        assert stream.columns[5].charset in (45, 224)  # 11.5+ has another default, and says utf8mb4_unicode_ci for it
        got = [
            values(bytes(row))
            for stretch in stream.stretches()
            for row in PacketSplitter().feed(stretch.data[stretch.start : stretch.end].tobytes())
        ]
    with source.connect() as plain, plain.cursor() as cursor:
        cursor.execute("SELECT id, n, d, m, CAST(v AS BINARY), CAST(u AS BINARY), b FROM r.t ORDER BY id")
        wanted = [[*row[:3], None if row[3] is None else str(row[3]).encode(), *row[4:]] for row in cursor.fetchall()]
    assert len(got) == ROWS
    assert got == wanted


# A row of one column: the header, the NULL bits, a length of 4 bytes up to 16 MB, of 9 above.
@pytest.mark.parametrize("length", [MAX_PIECE - 6 - 1, MAX_PIECE - 6, MAX_PIECE - 6 + 1, 20 << 20, 2 * MAX_PIECE - 11])
@pytest.mark.parametrize("compress", [False, True])
def test_rows_of_more_than_a_packet(source: MariaDb, length: int, *, compress: bool) -> None:
    with opened(replica_config(source, compress=compress)) as connection:
        rows = raw_rows(
            connection, f"SELECT 'a' UNION ALL SELECT REPEAT('xyz', {length // 3 + 1}) UNION ALL SELECT 'b'"
        )
        assert rows == [b"\0\0\1a", rows[1], b"\0\0\1b"]
        cursor = Cursor(rows[1], 2)
        assert cursor.lenenc() == length // 3 * 3 + 3
        assert bytes(cursor.rest()) == b"xyz" * (length // 3 + 1)
        exact = raw_rows(connection, f"SELECT LEFT(REPEAT('xyz', {length // 3 + 1}), {length})")
        assert len(exact[0]) == length + (6 if length < 1 << 24 else 11)
        assert raw_rows(connection, "SELECT 'c'") == [b"\0\0\1c"]


def test_a_result_without_rows(connection: TableConnection) -> None:
    assert raw_rows(connection, "SELECT * FROM r.t WHERE id = 0") == []


ENDLESS = "SELECT a.id, SHA2(REPEAT(a.u, 2000), 512) FROM r.t a, r.t b"


def test_a_statement_that_is_killed_in_the_middle(source: MariaDb, connection: TableConnection) -> None:
    ((thread,),) = connection.rows("SELECT CONNECTION_ID()")
    stretches = connection.select(ENDLESS).stretches()
    next(stretches)
    source.sql(f"KILL QUERY {thread}")
    with pytest.raises(ServerError) as caught:
        list(stretches)
    assert caught.value.code == 1317
    assert connection.rows("SELECT 1") == [("1",)]


def test_a_statement_that_takes_too_long(config: ReplicaConfig) -> None:
    with opened(config, statement_s=0.5) as connection:
        stretches = connection.select(ENDLESS).stretches()
        with pytest.raises(ServerError) as caught:
            list(stretches)
        assert caught.value.code == 1969
        assert raw_rows(connection, "SELECT 'c'") == [b"\0\0\1c"]


def test_a_connection_that_is_killed(source: MariaDb, connection: TableConnection) -> None:
    ((thread,),) = connection.rows("SELECT CONNECTION_ID()")
    stretches = connection.select(ENDLESS).stretches()
    next(stretches)
    source.sql(f"KILL {thread}")
    with pytest.raises(DisconnectedError):
        list(stretches)
    with pytest.raises(DisconnectedError):
        connection.rows("SELECT 1")


def failed(connection: TableConnection, sql: str) -> int:
    with pytest.raises(ServerError) as caught:
        raw_rows(connection, sql)
    return caught.value.code


def test_a_table_that_is_locked_altered_or_gone(source: MariaDb, config: ReplicaConfig) -> None:
    source.sql("CREATE OR REPLACE TABLE r.a (id INT PRIMARY KEY) ENGINE=InnoDB", "INSERT INTO r.a VALUES (1)")
    with opened(config, lock_wait_s=1) as connection, source.connect() as other, other.cursor() as cursor:
        connection.begin_snapshot()
        cursor.execute("ALTER TABLE r.a FORCE")
        assert failed(connection, "SELECT id FROM r.a") == 1412
        connection.end_snapshot()
        connection.begin_snapshot()
        assert len(raw_rows(connection, "SELECT id FROM r.a")) == 1
        connection.end_snapshot()
        cursor.execute("LOCK TABLES r.a WRITE")
        assert failed(connection, "SELECT id FROM r.a") == 1205
        cursor.execute("UNLOCK TABLES")
        assert len(raw_rows(connection, "SELECT id FROM r.a")) == 1
        assert failed(connection, "SELECT absent FROM r.a") == 1054
        cursor.execute("DROP TABLE r.a")
        assert failed(connection, "SELECT id FROM r.a") == 1146


def test_a_table_that_may_not_be_read(source: MariaDb) -> None:
    user, password = source.add_user("blind", grants="REPLICATION SLAVE")
    with (
        opened(replica_config(source, user=user, password=password)) as connection,
        pytest.raises(AuthenticationError) as caught,
    ):
        connection.select("SELECT id FROM r.t")
    assert caught.value.code == 1142


FORCED = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET autocommit = 0; SELECT COUNT(*) FROM r.small",
    "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; START TRANSACTION; SELECT COUNT(*) FROM r.small",
    "SET sql_select_limit = 1",
    "SET system_versioning_asof = '2020-01-01'",
    "SET character_set_results = latin1",
)


@pytest.mark.parametrize("forced", FORCED)
def test_a_session_is_as_it_has_to_be_whatever_init_connect_does(
    source: MariaDb, config: ReplicaConfig, forced: str
) -> None:
    source.sql("SET @@GLOBAL.init_connect = %s", args=(forced,))
    try:
        with opened(config) as connection:
            before = source.value("SELECT COUNT(*) FROM r.small")
            assert str(connection.begin_snapshot()) == source.gtid_binlog_pos()
            source.sql("INSERT INTO r.small SELECT MAX(id) + 1, 0 FROM r.small")
            assert len(raw_rows(connection, "SELECT id FROM r.small")) == before
            connection.end_snapshot()
            assert len(raw_rows(connection, "SELECT id FROM r.small")) == before + 1
            assert str(connection.position()) == source.gtid_binlog_pos()
    finally:
        source.sql("SET GLOBAL init_connect = ''")


@pytest.mark.parametrize("level", ["READ-COMMITTED", "SERIALIZABLE"])
def test_a_server_whose_sessions_begin_at_another_level(source: MariaDb, config: ReplicaConfig, level: str) -> None:
    source.sql(f"SET GLOBAL tx_isolation = '{level}'")
    try:
        with opened(config) as connection:
            before = len(raw_rows(connection, "SELECT id FROM r.small"))
            connection.begin_snapshot()
            source.sql("INSERT INTO r.small SELECT MAX(id) + 1, 0 FROM r.small")
            assert len(raw_rows(connection, "SELECT id FROM r.small")) == before
    finally:
        source.sql("SET GLOBAL tx_isolation = 'REPEATABLE-READ'")


def test_an_init_connect_that_fails_is_told(source: MariaDb, config: ReplicaConfig) -> None:
    source.sql("SET GLOBAL init_connect = 'SELECT absent'")
    try:
        with pytest.raises(ReplicaError) as caught:
            TableConnection.open(config, config.endpoints[0])
    finally:
        source.sql("SET GLOBAL init_connect = ''")
    assert "init_connect" in str(caught.value)


def test_a_server_without_a_binlog(make_server: Callable[..., MariaDb], server_version: str) -> None:
    config = replica_config(make_server(server_version, "--skip-log-bin"))
    with pytest.raises(PrerequisiteError, match="log_bin is off"):
        TableConnection.open(config)


def test_closing_ends_a_wait_in_another_thread(source: MariaDb, connection: TableConnection) -> None:
    ((thread,),) = connection.rows("SELECT CONNECTION_ID()")
    closing = threading.Timer(0.1, connection.close)
    closing.start()
    with pytest.raises(DisconnectedError, match="was closed"):
        raw_rows(connection, "SELECT SLEEP(60)")
    closing.join()
    source.sql(f"KILL {thread}")
    wait_until(
        lambda: not source.sql(f"SELECT id FROM information_schema.processlist WHERE id = {thread}"), "it is gone"
    )


@pytest.mark.parametrize("after", [1, 100, 300, 100_000])
def test_a_connection_that_is_cut_in_the_middle(source: MariaDb, after: int) -> None:
    with FaultProxy(source.host, source.port) as proxy, opened(replica_config(source, port=proxy.port)) as connection:
        proxy.cut_after(after)
        with pytest.raises(DisconnectedError):
            raw_rows(connection, "SELECT * FROM r.t")


def test_a_server_that_falls_silent(source: MariaDb) -> None:
    with FaultProxy(source.host, source.port) as proxy:
        config = replica_config(source, port=proxy.port)
        with opened(config, statement_s=0.1, silence_s=0.1) as connection:
            proxy.stall()
            with pytest.raises(DisconnectedError, match="The server sent nothing"):
                connection.rows("SELECT 1")
            proxy.resume()


def test_hosts_are_tried_in_turn(source: MariaDb) -> None:
    with FaultProxy(source.host, source.port) as proxy:
        proxy.refuse = True
        hosts = f"127.0.0.1:{proxy.port},127.0.0.1:{source.port}"
        with contextlib.closing(TableConnection.open(replica_config(source, host=hosts))) as connection:
            assert connection.endpoint.port == source.port
        assert proxy.accepted
