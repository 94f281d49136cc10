"""The monitor: an answer that is wanted soon, and a server that hangs, which it must not fill with waiting sessions."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import structlog

from replica.daemon import monitor
from replica.daemon.config import DaemonConfig
from replica.daemon.monitor import Monitor
from replica.handshake.login import login
from tests.fixtures.mariadb import wait_until
from tests.fixtures.network.proxy import FaultProxy
from tests.fixtures.replicas import replica_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


SHORT_S = 0.05


@contextlib.contextmanager
def watched(server: MariaDb, *, monitor_s: float = 0.05) -> Iterator[tuple[Monitor, FaultProxy]]:
    """A monitor that has had its first answer, and the proxy it talks through."""
    with FaultProxy(server.host, server.port) as proxy:
        account = replica_config(server, port=proxy.port, connect_timeout_s=30)
        config = DaemonConfig(**account.model_dump(exclude={"unix_socket"}), monitor_s=monitor_s)
        watching = Monitor(
            config, endpoint=lambda: config.endpoints[0], needed_file=lambda: "", log=structlog.get_logger()
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


def test_an_answer_that_is_wanted_soon_is_not_waited_for_until_the_regular_time(any_server: MariaDb) -> None:
    with watched(any_server, monitor_s=3600) as (watching, _):
        before = answered_at(watching)
        watching.ask_soon()
        wait_until(lambda: answered_at(watching) > before, "a second answer")


def test_one_session_waits_for_a_server_that_hangs(any_server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(any_server) as (watching, proxy):
        # From here on only the turns are short: a session that there is may take its time.
        monkeypatch.setattr(watching, "_config", watching._config.model_copy(update={"connect_timeout_s": SHORT_S}))
        monkeypatch.setattr(monitor, "ANSWER_TIMEOUT_S", SHORT_S)
        sessions, before = proxy.accepted, answered_at(watching)
        proxy.stall()
        wait_until(lambda: "still waiting for" in watching.error, "the silence is told")
        errors = watching.errors
        wait_until(lambda: watching.errors > errors + 3, "several turns")
        assert proxy.accepted == sessions
        proxy.resume()
        wait_until(lambda: answered_at(watching) > before and not watching.error, "a new answer")
        assert proxy.accepted == sessions


def test_sessions_that_were_given_up_come_later_and_later(any_server: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(any_server) as (watching, proxy):
        usual_s = watching._pause_s
        with monkeypatch.context() as impatient:
            impatient.setattr(login, "STATEMENT_TIMEOUT_S", SHORT_S)
            proxy.stall()
            wait_until(lambda: "no answer" in watching.error, "the session is given up")
            assert watching._pause_s >= 2 * usual_s
        proxy.resume()
        wait_until(lambda: not watching.error and watching._pause_s == usual_s, "a new answer")
