"""The monitor against a server that hangs: it must not fill it with sessions that nobody waits for."""

from __future__ import annotations

import contextlib
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
    from collections.abc import Iterator

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


@contextlib.contextmanager
def watched(server: MariaDb, connect_timeout_s: float) -> Iterator[tuple[Monitor, FaultProxy]]:
    """A monitor that has had its first answer, and the proxy it talks through."""
    with FaultProxy(server.host, server.port) as proxy:
        account = replica_config(server, port=proxy.port, connect_timeout_s=connect_timeout_s)
        config = DaemonConfig(**account.model_dump(exclude={"unix_socket"}), monitor_s=0.05)
        watching = Monitor(
            config, endpoint=lambda: config.endpoints[0], held_file=lambda: "", log=structlog.get_logger()
        )
        watching.start()
        try:
            wait_until(lambda: watching.known, "the first answer")
            yield watching, proxy
        finally:
            watching.stop()


def answered_at(watching: Monitor) -> float:
    assert watching.known is not None
    return watching.known.answer.answered_at


def test_one_session_waits_for_a_server_that_hangs(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "ANSWER_TIMEOUT_S", 0.05)
    with watched(server, connect_timeout_s=0.05) as (watching, proxy):
        sessions, before = proxy.accepted, answered_at(watching)
        proxy.stall()
        wait_until(lambda: "waited for" in watching.error, "the silence is told")
        errors = watching.errors
        wait_until(lambda: watching.errors > errors + 5, "several turns")
        assert proxy.accepted == sessions
        proxy.resume()
        wait_until(lambda: answered_at(watching) > before and not watching.error, "a new answer")
        assert proxy.accepted == sessions


def test_sessions_that_were_given_up_come_later_and_later(server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "STATEMENT_TIMEOUT_S", 0.05)
    with watched(server, connect_timeout_s=5.0) as (watching, proxy):
        proxy.stall()
        wait_until(lambda: "no answer" in watching.error, "the session is given up")
        assert watching._pause_s == 0.1
        proxy.resume()
        wait_until(lambda: not watching.error, "a new answer")
        assert watching._pause_s == 0.05
