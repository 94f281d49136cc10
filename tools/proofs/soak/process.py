"""Daemon as a black box: a process with a configuration file, signals, an exit code and its use of resources.

In: addresses of its servers, and its relay directory. Out: the process, which is restarted as a service manager would
do, its log, its memory and its descriptors. An exit that was not requested is recorded with the last lines of the log,
for the judge.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.fixtures.installation import PROJECT

RESTART_S = 0.3
STOP_TIMEOUT_S = 30.0
"""A loaded machine; what takes longer hangs."""
CLOCK_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
)


class Exit(NamedTuple):
    """An exit nobody asked for."""

    code: int
    under: str
    """The faults that were at work."""
    log: str


def clock_library() -> str | None:
    """libfaketime, from $LIBFAKETIME or where Debian installs it."""
    places = (os.environ.get("LIBFAKETIME", ""), *CLOCK_LIBRARIES)
    return next((place for place in places if place and Path(place).exists()), None)


@dataclass
class DaemonProcess:
    """`start` and `tend`, then signals; `wanted` says whether it should be up."""

    folder: Path
    hosts: str
    account: tuple[str, str]
    relay: Path
    http_port: int
    wanted: bool = False
    starts: int = 0
    exits: list[Exit] = field(default_factory=list)
    peak_rss: int = 0
    peak_descriptors: int = 0
    first_descriptors: int = 0
    peak_threads: int = 0
    slowest_stop_s: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _died_at: float = 0.0
    _log_start: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        lines = (f"{name} = {_toml(value)}" for name, value in self._options().items())
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.clock = self.folder / "clock"
        self.clock.write_text("+0", encoding="utf-8")

    def _options(self) -> dict[str, object]:
        """Impatient, so that a fault and its end take seconds, and small, so that files come and go all the time."""
        user, password = self.account
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(password, encoding="utf-8")
        return {
            "host": self.hosts,
            "user": user,
            "password_file": secret,
            "relay_dir": self.relay,
            "start": "earliest",
            "server_id": 900,
            "semi_sync": True,
            "gtid_strict_mode": False,
            "heartbeat_s": 0.5,
            "connect_timeout_s": 5,
            "backoff_initial_s": 0.05,
            "backoff_max_s": 1,
            "connect_retry_s": 3600,
            "reconnect_retry_s": 3600,
            "relay_max_file_bytes": 4 << 20,
            "relay_max_file_age_s": 20,
            "min_free_bytes": 2 << 20,
            "retain_bytes": 32 << 20,
            "monitor_s": 1,
            "http_listen": f"127.0.0.1:{self.http_port}",
        }

    @property
    def config(self) -> Path:
        return self.folder / "daemon.toml"

    @property
    def log(self) -> str:
        return (self.folder / "daemon.log").read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *options: str, tended: bool = True) -> None:
        """`options`: for this time only. Untended, it is not started again when it ends."""
        with self._lock:
            environment = os.environ | {"PYTHONPATH": str(PROJECT)}
            library = clock_library()
            if library:
                environment |= {
                    "LD_PRELOAD": library,
                    "FAKETIME_TIMESTAMP_FILE": str(self.clock),
                    "FAKETIME_NO_CACHE": "1",
                    "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # no clock that jumps moves this one
                    "FAKETIME_DISABLE_SHM": "1",
                }
            command = [sys.executable, "-m", "replica", "run", "--config", str(self.config), *options]
            with (self.folder / "daemon.log").open("ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=PROJECT, env=environment)
            self.wanted = tended
            self.starts += 1

    @property
    def has_started(self) -> bool:
        """It said so: from then on it answers signals itself."""
        return b'"started"' in (self.folder / "daemon.log").read_bytes()[self._log_start :]

    def said(self, event: str) -> dict[str, str] | None:
        """What it logged as `event` since its last start."""
        text = (self.folder / "daemon.log").read_bytes()[self._log_start :].decode("utf-8", "replace")
        events = (json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}"))
        return next((one for one in events if one["event"] == event), None)

    def exit_code(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """How it ended by itself; it was left untended before."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s:.0f} s:\n{self.log[-3000:]}") from None

    def signal(self, number: int) -> None:
        with self._lock:
            if self.running and self._process is not None:
                self._process.send_signal(number)

    def kill(self) -> None:
        """A crash."""
        with self._lock:
            self.wanted = False
            self.signal(signal.SIGKILL)
            if self._process is not None:
                self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """SIGTERM: it ends soon and with exit code 0."""
        with self._lock:
            self.wanted = False
            if not self.running or self._process is None:
                return
            began = time.monotonic()
            self._process.send_signal(signal.SIGTERM)
            try:
                code = self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"not gone {STOP_TIMEOUT_S:.0f} s after SIGTERM:\n{self.log[-3000:]}") from None
            self.slowest_stop_s = max(self.slowest_stop_s, time.monotonic() - began)
            early = code == -signal.SIGTERM and not self.has_started  # still importing: there is nothing to end
            assert code == 0 or early, f"exit code {code} after SIGTERM:\n{self.log[-3000:]}"

    def tend(self, faults: str) -> None:
        """Called a few times a second: take samples, and start it again if it is down but should not be."""
        with self._lock:
            if self._process is None or not self.wanted:
                return
            if self.running:
                self._sample(self._process.pid)
            elif not self._died_at:
                self._died_at = time.monotonic()
                self.exits.append(Exit(self._process.returncode, faults, self.log[-2500:]))
            elif time.monotonic() - self._died_at >= RESTART_S:
                self._died_at = 0.0
                self.start()

    def _sample(self, pid: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(pid)
            descriptors = process.num_fds()
            self.first_descriptors = self.first_descriptors or descriptors
            self.peak_rss = max(self.peak_rss, process.memory_info().rss)
            self.peak_descriptors = max(self.peak_descriptors, descriptors)
            self.peak_threads = max(self.peak_threads, process.num_threads())

    def answer(self, path: str) -> tuple[int, str]:
        """HTTP status and text of one of its pages; 0 and the reason if nothing answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error)
        finally:
            connection.close()

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command of the program on the same relay log."""
        command = [sys.executable, "-m", "replica", name, "--relay-dir", str(self.relay), *arguments]
        environment = os.environ | {"PYTHONPATH": str(PROJECT)}
        return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else f'"{value}"'
