"""The monitor against a server that hangs: it must not fill it with sessions that nobody waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from replica.daemon import monitor
from replica.daemon.config import DaemonConfig
from replica.daemon.monitor import Monitor
from replica.handshake import login
from tests.fixtures.mariadb import wait_until
from tests.fixtures.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


def started(config: DaemonConfig) -> Monitor:
    made = Monitor(config, endpoint=lambda: config.endpoints[0], held_file=lambda: "", log=structlog.get_logger())
    made.start()
    return made


def test_one_session_waits_for_a_server_that_hangs(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "ANSWER_TIMEOUT_S", 0.05)
    with FaultProxy(server.host, server.port) as proxy:
        config = DaemonConfig(
            **replica_config(server, port=proxy.port, connect_timeout_s=0.05).model_dump(exclude={"unix_socket"}),
            monitor_s=0.05,
        )
        watching = started(config)
        try:
            wait_until(lambda: watching.known, "the first answer")
            sessions, answered_at = proxy.accepted, watching.known.answer.answered_at
            proxy.stall()
            wait_until(lambda: "waited for" in watching.error, "the silence is told")
            errors = watching.errors
            wait_until(lambda: watching.errors > errors + 5, "several turns")
            assert proxy.accepted == sessions
            proxy.resume()
            wait_until(lambda: watching.known.answer.answered_at > answered_at and not watching.error, "a new answer")
            assert proxy.accepted == sessions
        finally:
            watching.stop()


def test_sessions_that_were_given_up_come_later_and_later(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "STATEMENT_TIMEOUT_S", 0.05)
    with FaultProxy(server.host, server.port) as proxy:
        config = DaemonConfig(
            **replica_config(server, port=proxy.port, connect_timeout_s=5.0).model_dump(exclude={"unix_socket"}),
            monitor_s=0.05,
        )
        watching = started(config)
        try:
            wait_until(lambda: watching.known, "the first answer")
            proxy.stall()
            wait_until(lambda: "no answer" in watching.error, "the session is given up")
            assert watching._pause_s == 0.1
            proxy.resume()
            wait_until(lambda: not watching.error, "a new answer")
            assert watching._pause_s == 0.05
        finally:
            watching.stop()
