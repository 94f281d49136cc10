from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from replica.daemon.notify import Notifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        yield receiver


def test_the_messages(manager: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.ready()
    notifier.status("two\nlines")
    notifier.alive()
    notifier.stopping()
    notifier.close()
    got = [manager.recv(1000).decode() for _ in range(4)]
    assert got == [f"READY=1\nMAINPID={os.getpid()}", "STATUS=two lines", "WATCHDOG=1", "STOPPING=1"]


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0replica-test-{os.getpid()}")
        receiver.settimeout(60)
        Notifier({"NOTIFY_SOCKET": f"@replica-test-{os.getpid()}"}).stopping()
        assert receiver.recv(100) == b"STOPPING=1"


def test_without_systemd_nothing_happens() -> None:
    notifier = Notifier({})
    notifier.ready()
    notifier.close()
    assert notifier.watchdog_s is None


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).alive()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getppid())}, None),  # meant for a parent of ours
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_how_long_the_watchdog_waits(variables: dict[str, str], expected: float | None) -> None:
    assert Notifier(variables).watchdog_s == expected
