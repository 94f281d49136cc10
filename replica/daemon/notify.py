"""Messages to systemd: ready, alive, stopping, and one line of status. Without systemd nothing is sent.

In: NOTIFY_SOCKET and WATCHDOG_USEC of the environment (sd_notify(3)). Out: datagrams. Sending never waits and never
fails the daemon. A lost message costs a restart at worst, and systemd logs that.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """Sender of messages. `watchdog_s`: seconds for which systemd waits for a sign of life; None without a watchdog."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self.watchdog_s = _watchdog_s(environment)
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self) -> None:
        self._send(f"READY=1\nMAINPID={os.getpid()}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def status(self, line: str) -> None:
        """Send the line that `systemctl status` shows."""
        self._send("STATUS=" + line.replace("\n", " "))

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(message.encode(), self._address)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    text = environment.get("WATCHDOG_USEC", "")
    # The variables are inherited. WATCHDOG_PID is the id of the process for which they are meant.
    for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(text) / 1e6 if text.isdecimal() and int(text) and for_us else None
