"""A host that is no server, before a good one: the daemon says so, and streams from the other."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import psutil
import pytest

import replica.handshake.login.login
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from tests.fixtures.mariadb import MariaDb, wait_until
from tests.fixtures.network.hostile import ANSWERS, Answer, HostileServer
from tests.fixtures.replicas import replica_config
from tests.integration.daemon.test_daemon import WAIT_S, Daemon, written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.server

MAX_RSS = 400 << 20
"""Endless rows made it gigabytes."""
NAMES = ["garbage", "an ERR packet of one byte", "local infile", "an absurd column count", "endless rows"]


@pytest.mark.parametrize("name", [NAMES[0], NAMES[-1], *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES[1:-1])])
def test_a_daemon_goes_on_to_the_good_host(any_server: MariaDb, tmp_path: Path, name: str) -> None:
    with HostileServer(ANSWERS[name]) as hostile:
        hosts = f"127.0.0.1:{hostile.port},{any_server.host}:{any_server.port}"
        daemon = Daemon(tmp_path, any_server, f"--host={hosts}")
        try:
            any_server.sql("CREATE OR REPLACE DATABASE hostile", "CREATE TABLE hostile.t(a INT)")
            last = any_server.gtid_binlog_pos()
            wait_until(lambda: daemon.process.poll() is not None or written(daemon) == last, "the good host is read")
            assert daemon.process.poll() is None, daemon.log.read_text()
            assert psutil.Process(daemon.process.pid).memory_info().rss < MAX_RSS
            assert hostile.accepted
            assert daemon.ended(signal.SIGTERM) == 0
        finally:
            daemon.end()
    (refused,) = [one for one in daemon.events() if one["event"] == "refused"]
    assert refused["endpoint"] == f"127.0.0.1:{hostile.port}"
    assert "Traceback" not in daemon.log.read_text()


def test_a_host_that_says_nothing_keeps_no_other_from_its_turn(
    any_server: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than we try at all before a first connection."""
    monkeypatch.setattr(replica.handshake.login.login, "STATEMENT_TIMEOUT_S", 0.5)
    silent = Answer("statement", list)
    with HostileServer(silent) as hostile:
        hosts = f"127.0.0.1:{hostile.port},{any_server.host}:{any_server.port}"
        config = replica_config(any_server, host=hosts, connect_retry_s=0.1)
        with EmbeddedReplica(config, tmp_path / "relay") as embedded:
            position = GtidPosition.parse(any_server.gtid_binlog_pos())
            embedded.start(position)
            any_server.sql("CREATE OR REPLACE DATABASE hostile")
            assert embedded.wait_for(GtidPosition.parse(any_server.gtid_binlog_pos()), WAIT_S)
        assert hostile.accepted


def test_a_lone_hostile_host_is_exit_code_50(any_server: MariaDb, tmp_path: Path) -> None:
    with HostileServer(ANSWERS["local infile"]) as hostile:
        daemon = Daemon(tmp_path, any_server, f"--host=127.0.0.1:{hostile.port}")
        try:
            assert daemon.process.wait(WAIT_S) == 50
        finally:
            daemon.end()
    log = daemon.log.read_text()
    assert "asks for a file of this machine" in log
    assert "Traceback" not in log
