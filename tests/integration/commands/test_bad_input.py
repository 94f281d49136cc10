"""Everything a user or a server can get wrong on the replica's side: one clear typed error each, and nothing lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import (
    AuthenticationError,
    ChecksumError,
    ConfigError,
    DisconnectedError,
    DuplicateServerIdError,
    PositionLostError,
    PrerequisiteError,
    RelayError,
    ReplicaError,
    SchemaError,
    UnsupportedEventError,
)
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config
from tests.integration.connection.semisync.semi_sync import LONG_HEARTBEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.options.config import ReplicaConfig

pytestmark = pytest.mark.server

WAIT_S = 60.0
SECRET = "wrong-and-secret"


def ended_by(config: ReplicaConfig, directory: Path, position: str | None = "") -> ReplicaError:
    """The error a replica ends with, as every later call raises it."""
    with EmbeddedReplica(config, directory) as replica:
        replica.start(None if position is None else GtidPosition.parse(position))
        with pytest.raises(ReplicaError) as caught:
            replica.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
        with pytest.raises(type(caught.value)):
            replica.head()
    return caught.value


def test_wrong_password(server: MariaDb, tmp_path: Path) -> None:
    server.add_user()
    error = ended_by(replica_config(server, user="repl", password=SECRET), tmp_path)
    assert isinstance(error, AuthenticationError)
    assert error.code == 1045
    assert "repl" in error.message
    assert SECRET not in str(error)


def test_unknown_user(server: MariaDb, tmp_path: Path) -> None:
    error = ended_by(replica_config(server, user="nobody-here", password=SECRET), tmp_path)
    assert isinstance(error, AuthenticationError)
    assert "nobody-here" in error.message


def test_missing_grant_names_the_statement_that_grants_it(server: MariaDb, tmp_path: Path) -> None:
    user, password = server.add_user("powerless", grants="SELECT")
    error = ended_by(replica_config(server, user=user, password=password), tmp_path)
    assert isinstance(error, AuthenticationError)
    assert error.code == 1045
    grant = "GRANT REPLICATION SLAVE ON *.* TO 'powerless'@'%'"
    assert grant in error.hint
    server.sql("SET sql_log_bin = 0", grant)
    with EmbeddedReplica(replica_config(server, user=user, password=password), tmp_path) as replica:
        replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
        wait_until(lambda: replica.progress.state == "streaming", "connected after the fix from the hint")


def test_every_unmet_prerequisite_in_one_error(
    make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path
) -> None:
    server = make_server(server_version, "--skip-log-bin", "--binlog-format=STATEMENT", server_id=7)
    user, password = server.add_user(grants="SELECT")
    error = ended_by(replica_config(server, user=user, password=password, server_id=7), tmp_path)
    assert isinstance(error, PrerequisiteError)
    for word in ("log_bin", "STATEMENT", "REPLICATION SLAVE", "server_id 7"):
        assert word in error.message
    for fix in ("log_bin=binlog", "SET GLOBAL binlog_format = 'ROW'", "GRANT REPLICATION SLAVE"):
        assert fix in error.hint


@pytest.mark.parametrize("binlog_format", ["STATEMENT", "MIXED"])
def test_binlog_format_without_rows(server: MariaDb, binlog_format: str, tmp_path: Path) -> None:
    server.sql(f"SET GLOBAL binlog_format = '{binlog_format}'")
    try:
        error = ended_by(replica_config(server), tmp_path)
    finally:
        server.sql("SET GLOBAL binlog_format = 'ROW'")
    assert isinstance(error, PrerequisiteError)
    assert binlog_format in error.message


def test_a_position_the_server_does_not_have(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE OR REPLACE DATABASE bad")
    for position in ("0-1-999999", "77-1-1", "0-99-1"):
        error = ended_by(replica_config(server), tmp_path / position, position)
        assert isinstance(error, PositionLostError)
        assert position in error.message
        assert "new checkpoint" in error.hint


def test_a_purged_position(make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path) -> None:
    server = make_server(server_version)
    server.sql("CREATE DATABASE bad", "CREATE TABLE bad.t(a INT)", "INSERT INTO bad.t VALUES (1)", "FLUSH BINARY LOGS")
    server.sql("INSERT INTO bad.t VALUES (2)", "FLUSH BINARY LOGS")
    server.purge_binlogs()
    for number, position in enumerate(("", "0-1-2")):
        error = ended_by(replica_config(server), tmp_path / str(number), position)
        assert isinstance(error, PositionLostError)
        assert "purged" in str(error)


@pytest.mark.edge(67)
def test_the_same_server_id_twice(server: MariaDb, tmp_path: Path) -> None:
    config = replica_config(server, server_id=4_000_000_001, heartbeat_s=LONG_HEARTBEAT_S)
    with EmbeddedReplica(config, tmp_path / "first") as first, EmbeddedReplica(config, tmp_path / "second") as second:
        position = GtidPosition.parse(server.gtid_binlog_pos())
        first.start(position)
        wait_until(lambda: dumps(server, first), "the primary sends to the first")
        second.start(position)
        with pytest.raises(DuplicateServerIdError) as caught:
            first.wait_for(GtidPosition.parse("4294967295-1-1"), WAIT_S)
        assert caught.value.code == 4052
        # The first must not come back and evict the second in turn.
        server.sql("CREATE OR REPLACE DATABASE twice")
        assert second.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S)
        assert second.progress.connections == 1
        wait_until(lambda: dumps(server, second) and not dumps(server, first), "the second alone is served")


def dumps(server: MariaDb, replica: EmbeddedReplica) -> bool:
    """Whether the primary has begun to send to it: until then nobody evicts it, and it evicts nobody."""
    return replica.progress.thread_id in server.dump_threads()


def test_the_primarys_own_server_id(server: MariaDb, tmp_path: Path) -> None:
    error = ended_by(replica_config(server, server_id=1), tmp_path)
    assert isinstance(error, PrerequisiteError)
    assert "server's own" in error.message


def test_nobody_listens(server: MariaDb, tmp_path: Path) -> None:
    with FaultProxy(server.host, server.port) as proxy:
        proxy.refuse = True
        error = ended_by(replica_config(server, port=proxy.port, connect_retry_s=0.1), tmp_path)
        assert isinstance(error, DisconnectedError)
        assert str(proxy.port) in error.message
        tried = proxy.accepted
        assert tried
        with EmbeddedReplica(replica_config(server, port=proxy.port, connect_retry_s=600), tmp_path) as patient:
            patient.start(None)
            wait_until(lambda: proxy.accepted > tried + 1, "it tries again")
            proxy.refuse = False
            wait_until(lambda: patient.progress.state == "streaming", "and comes through")


def test_a_man_in_the_middle_does_not_get_the_password(server: MariaDb, tmp_path: Path) -> None:
    server.sql(
        "SET sql_log_bin = 0",
        "INSTALL PLUGIN IF NOT EXISTS ed25519 SONAME 'auth_ed25519'",
        "CREATE OR REPLACE USER modern@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
    )
    switch = b"\xfemysql_clear_password\x00"

    def ask_for_clear_text(data: bytes) -> bytes:
        return bytes((len(switch), 0, 0, 2)) + switch if b"client_ed25519" in data else data

    with FaultProxy(server.host, server.port) as proxy:
        proxy.mangle = ask_for_clear_text
        error = ended_by(replica_config(server, user="modern", password="secret", port=proxy.port), tmp_path)
    assert isinstance(error, AuthenticationError)
    assert "mysql_clear_password" in error.message
    assert "where it can be read" in error.message


def test_damage_in_the_stream_that_stays(server: MariaDb, tmp_path: Path) -> None:
    server.sql("CREATE OR REPLACE DATABASE damaged", "CREATE TABLE damaged.t(a VARCHAR(99))")
    start = server.gtid_binlog_pos()
    before = len(server_gtids(server))
    server.sql("INSERT INTO damaged.t VALUES ('good')", "INSERT INTO damaged.t VALUES ('flip me')")
    with FaultProxy(server.host, server.port) as proxy:
        proxy.mangle = lambda data: data.replace(b"flip me", b"flip mf")
        config = replica_config(server, port=proxy.port)
        error = ended_by(config, tmp_path, start)
        assert isinstance(error, ChecksumError)
        assert relay_gtids(server, tmp_path) == server_gtids(server)[before:-1], "what came before it is kept"
        proxy.mangle = None
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(start))
            assert replica.wait_for(GtidPosition.parse(server.gtid_binlog_pos()), WAIT_S)
    assert relay_gtids(server, tmp_path) == server_gtids(server)[before:]


def test_an_unknown_event_type(make_server: Callable[..., MariaDb], server_version: str, tmp_path: Path) -> None:
    server = make_server(server_version, "--binlog-checksum=NONE")  # so that only the type is wrong
    server.sql("CREATE DATABASE d", "CREATE TABLE d.t(a VARCHAR(99))", "INSERT INTO d.t VALUES ('a marked row')")
    with FaultProxy(server.host, server.port) as proxy:

        def foreign(data: bytes) -> bytes:
            row = data.find(b"a marked row")
            found = data.rfind(b"\x17\x01\x00\x00\x00", 0, max(row, 0))  # WRITE_ROWS_V1 of server 1
            return data if found < 0 else data[:found] + b"\xee" + data[found + 1 :]

        proxy.mangle = foreign
        error = ended_by(replica_config(server, port=proxy.port), tmp_path)
    assert isinstance(error, UnsupportedEventError)
    assert "238" in error.message
    assert relay_gtids(server, tmp_path) == server_gtids(server)[:-1], "the groups before it are kept"


def test_an_unknown_table(server: MariaDb, tmp_path: Path) -> None:
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        with pytest.raises(SchemaError, match=r"shop\.ordres"):
            replica.fetch_schema([("shop", "ordres")])
        server.sql("CREATE OR REPLACE DATABASE shop", "CREATE TABLE shop.orders(id INT PRIMARY KEY, name TEXT)")
        tables = replica.fetch_schema([("shop", "orders")])
        assert [column.name for column in tables["shop", "orders"].columns] == ["id", "name"]


def test_a_relay_directory_in_use(server: MariaDb, tmp_path: Path) -> None:
    config = replica_config(server)
    with EmbeddedReplica(config, tmp_path) as first, EmbeddedReplica(config, tmp_path) as second:
        first.start(None)
        with pytest.raises(RelayError, match="in use"):
            second.start(None)


def test_a_malformed_start(server: MariaDb) -> None:
    with pytest.raises(ConfigError, match="yesterday"):
        replica_config(server, start="yesterday")
