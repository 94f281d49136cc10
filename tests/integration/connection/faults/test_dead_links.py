"""Links and servers that say nothing: only time tells, and a connection that was idle has lost no patience."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.logs.listing import relay_gtids, server_gtids
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

WAIT_S = 60.0


def table(server: MariaDb) -> None:
    server.sql("CREATE OR REPLACE DATABASE link", "CREATE TABLE link.t(v VARCHAR(100))")


def caught_up(replica: EmbeddedReplica, server: MariaDb) -> None:
    target = GtidPosition.parse(server.gtid_binlog_pos())
    assert replica.wait_for(target, WAIT_S), f"{replica.head().position} is not {target}"


@pytest.mark.edge(68)
def test_a_silent_server_is_left_and_found_again(server: MariaDb, tmp_path: Path) -> None:
    table(server)
    with FaultProxy(server.host, server.port) as proxy:
        config = replica_config(server, port=proxy.port, heartbeat_s=0.2)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
            server.sql("INSERT INTO link.t(v) VALUES ('one')")
            caught_up(replica, server)
            connections = proxy.accepted
            proxy.stall()
            wait_until(lambda: proxy.accepted > connections, "a new connection after the silence")
            server.sql("INSERT INTO link.t(v) VALUES ('two')")
            proxy.resume()
            caught_up(replica, server)


def test_a_login_whose_bytes_were_damaged_is_tried_again(server: MariaDb, tmp_path: Path) -> None:
    """A flipped bit in the greeting's salt looks like a wrong password; twice in a row would be one."""
    table(server)
    damaged: list[bytes] = []

    def flip_the_salt(data: bytes) -> bytes:
        version_end = data.find(b"\0", 5)
        if damaged or data[4:5] != b"\x0a" or version_end < 0:
            return data
        damaged.append(data)
        salt = version_end + 5
        return data[:salt] + bytes((data[salt] ^ 1,)) + data[salt + 1 :]

    with FaultProxy(server.host, server.port) as proxy:
        config = replica_config(server, port=proxy.port)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(server.gtid_binlog_pos()))
            server.sql("INSERT INTO link.t(v) VALUES ('one')")
            caught_up(replica, server)
            proxy.mangle = flip_the_salt
            proxy.reset_all()
            wait_until(lambda: damaged, "a login through the damage")
            server.sql("INSERT INTO link.t(v) VALUES ('two')")
            caught_up(replica, server)
            assert replica.progress.failed_attempts == 1


@pytest.mark.edge(68)
def test_a_server_that_stands_still_is_left_and_found_again(any_server: MariaDb, tmp_path: Path) -> None:
    """Its sockets stay open and its kernel takes connections: only time tells."""
    table(any_server)
    before = len(server_gtids(any_server))
    config = replica_config(any_server, heartbeat_s=0.2, connect_timeout_s=0.5)  # of many tries one is quick enough
    with EmbeddedReplica(config, tmp_path) as replica:
        progress = replica.progress
        replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
        any_server.sql("INSERT INTO link.t(v) VALUES ('one')")
        caught_up(replica, any_server)
        disconnects, failed = progress.disconnects, progress.failed_attempts
        any_server.signal(signal.SIGSTOP)
        try:
            wait_until(lambda: progress.disconnects > disconnects, "the silence is noticed")
            wait_until(lambda: progress.failed_attempts > failed, "no login is completed")
            assert "login" in progress.last_error
        finally:
            any_server.signal(signal.SIGCONT)
        any_server.sql("INSERT INTO link.t(v) VALUES ('two')")
        caught_up(replica, any_server)
        wait_until(lambda: progress.state == "streaming", "it streams")
    assert relay_gtids(any_server, tmp_path) == server_gtids(any_server)[before:]


def test_an_idle_connection_that_ends_is_no_lost_patience(
    any_server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.live.client.STEADY_S", 0.3)
    with FaultProxy(any_server.host, any_server.port) as proxy:
        config = replica_config(any_server, port=proxy.port, reconnect_retry_s=0.2, heartbeat_s=30)
        with EmbeddedReplica(config, tmp_path) as replica:
            replica.start(GtidPosition.parse(any_server.gtid_binlog_pos()))
            wait_until(lambda: replica.progress.connections, "connected")
            assert not replica.wait_beyond(replica.head().location, 0.6)
            proxy.reset_all()
            table(any_server)
            caught_up(replica, any_server)
