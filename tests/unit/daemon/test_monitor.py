"""The monitor against a server that takes connections and says nothing."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
import structlog

from replica.daemon.config import DaemonConfig
from replica.daemon.monitor import Monitor
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def silent_port() -> Iterator[tuple[int, list[socket.socket]]]:
    """A server that says nothing, and the connections it has taken."""
    taken: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], taken
        listener.shutdown(socket.SHUT_RDWR)
    for one in taken:
        one.close()


def started(config: DaemonConfig) -> Monitor:
    made = Monitor(config, endpoint=lambda: config.endpoints[0], needed_file=lambda: "", log=structlog.get_logger())
    made.start()
    return made


def test_a_login_that_hangs_is_an_error_with_words(silent_port: tuple[int, list[socket.socket]]) -> None:
    port, _ = silent_port
    watching = started(DaemonConfig(user="repl", host=f"127.0.0.1:{port}", monitor_s=0.05, connect_timeout_s=0.1))
    try:
        wait_until(lambda: "login" in watching.error, "the error of a login that hangs")
        assert watching.known is None
    finally:
        watching.stop()
