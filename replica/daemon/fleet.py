"""Supervisor of one daemon for each configuration file, each in a process forked from this one.

In: the files by name, and the function that a process runs with its file. Out: processes. A failed process is restarted
with growing delays, and a hanging one is killed. After an error that only a person can fix, a process is restarted at
the next SIGHUP. The parent holds no connection and no relay log, and must not start a thread, because a fork copies the
locks that other threads hold.

Each process reports its state to the parent as it would to systemd (notify.py), over its own socket. The parent reports
the state of all to systemd.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from replica.daemon.notify import Notifier
from replica.errors import (
    AuthenticationError,
    ConfigError,
    DuplicateServerIdError,
    InstallationError,
    OutOfOrderGtidError,
    PositionLostError,
    PrerequisiteError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from multiprocessing.process import BaseProcess

    LogEvent = Callable[..., object]

FOR_PEOPLE: Final = frozenset(
    kind.exit_code
    for kind in (
        ConfigError, PrerequisiteError, InstallationError, AuthenticationError, PositionLostError,
        DuplicateServerIdError, OutOfOrderGtidError,
    )
)  # fmt: skip
"""Exit codes after which no restart helps, as in RestartPreventExitStatus of the unit files."""
FIRST_RETRY_S: Final = 5.0
LAST_RETRY_S: Final = 60.0
SOUND_S: Final = 600.0
"""Run time in seconds after which a failure no longer counts as a repeated one, and the first retry delay is used
again.
"""
SILENT_S: Final = 120.0
"""Seconds without a sign of life before a process is killed, as WatchdogSec of the unit files. A slow disk may delay
the loop for a while.
"""
STARTING_S: Final = 600.0
"""Seconds without the first sign of life before a process is killed. Meanwhile, it may recover a relay log or wait for
disk space.
"""
STOP_S: Final = 30.0
TURN_S: Final = 5.0
MAX_MESSAGE_BYTES: Final = 4096
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SET_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of prctl(2)


@dataclass
class Member:
    """Daemon of a fleet: its name, its file, and the state of its process."""

    name: str
    file: Path
    process: BaseProcess | None = None
    socket: socket.socket | None = None
    settled: bool = False  # a process was ready, or has ended, once
    ready: bool = False  # this process was ready
    heard_at: float = 0.0
    started_at: float = 0.0
    due_at: float | None = 0.0  # None: it is not restarted
    failures: int = 0
    exit_code: int = 0

    @property
    def running(self) -> bool:
        return self.process is not None


class Fleet:
    """Parent process of all daemons. Call `run()` in the main thread."""

    def __init__(self, files: Mapping[str, Path], work: Callable[[Path], None], log_event: LogEvent) -> None:
        self._members = [Member(name, file) for name, file in files.items()]
        self._work = work
        self._log_event = log_event
        self._context = multiprocessing.get_context("fork")
        self._notifier = Notifier()
        self._signals: list[int] = []
        self._leaving_since: float | None = None
        self._ready = False

    def run(self) -> int:
        """Run until a stop is requested, or until no process is left to run.

        Returns:
            0 if a stop was requested and all processes ended well, else the exit code of one that did not.
        """
        with tempfile.TemporaryDirectory(prefix="mariadb-replica-") as folder, contextlib.ExitStack() as stack:
            wake = self._take_signals(stack)
            for number, member in enumerate(self._members):
                self._open(member, Path(folder) / str(number))
            try:
                while self._turn(wake):
                    pass
            finally:
                for member in self._members:
                    if member.process is not None:
                        member.process.kill()
                        member.process.join()
                    if member.socket is not None:
                        member.socket.close()
                self._notifier.close()
        return next((m.exit_code for m in self._members if m.exit_code), 0)

    def _take_signals(self, stack: contextlib.ExitStack) -> socket.socket:
        """Install signal handlers that wake the loop and store the signals in `_signals`."""
        read_end, write_end = socket.socketpair()
        for end in (read_end, write_end):
            end.setblocking(False)
            stack.callback(end.close)
        signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
        stack.callback(signal.set_wakeup_fd, -1)
        for number in SIGNALS:
            before = signal.signal(number, lambda received, _frame: self._signals.append(received))
            stack.callback(signal.signal, number, before)
        return read_end

    @staticmethod
    def _open(member: Member, path: Path) -> None:
        """Bind the socket on which a process reports its state."""
        member.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        member.socket.bind(str(path))
        member.socket.setblocking(False)

    def _turn(self, wake: socket.socket) -> bool:
        """Wait for the next event and handle it; return False at the end."""
        now = time.monotonic()
        for member in self._members:
            if member.process is None and member.due_at is not None and member.due_at <= now:
                self._start(member)
        if not any(m.running or m.due_at is not None for m in self._members):
            return False
        self._notify()
        dues = [m.due_at - now for m in self._members if not m.running and m.due_at is not None]
        ends = [m.process.sentinel for m in self._members if m.process is not None]
        sockets = [m.socket for m in self._members if m.socket is not None]
        wait([wake, *ends, *sockets], min([TURN_S, *(max(due, 0.0) for due in dues)]))
        with contextlib.suppress(BlockingIOError):
            while wake.recv(MAX_MESSAGE_BYTES):
                pass
        while self._signals:
            self._obey(self._signals.pop(0))
        for member in self._members:
            self._listen(member)
            if member.process is not None and member.process.exitcode is not None:
                self._ended(member, member.process.exitcode)
            elif member.process is not None:
                self._watch(member)
        return True

    def _obey(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._pass_on(signal.SIGHUP)
            for member in self._members:
                if not member.running and self._leaving_since is None:
                    member.due_at = 0.0  # SIGHUP means that a person has fixed the cause
            return
        if self._leaving_since is None:
            self._leaving_since = time.monotonic()
            self._notifier.stopping()
            for member in self._members:
                member.due_at = None
            self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: int) -> None:
        for member in self._members:
            if member.process is not None and member.process.pid is not None and member.process.exitcode is None:
                os.kill(member.process.pid, number)

    def _start(self, member: Member) -> None:
        # A signal between the fork and the child's own handlers would call our handlers, and be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process = self._context.Process(target=self._child, args=(member,), name=member.name)
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        member.process, member.due_at, member.ready = process, None, False
        member.started_at = member.heard_at = time.monotonic()
        self._log_event("info", "daemon begins", daemon=member.name, file=str(member.file), pid=process.pid)

    def _child(self, member: Member) -> None:
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # ignored until the child installs its own handler
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)  # sent at any end of the parent
        os.environ.pop("WATCHDOG_PID", None)
        os.environ["WATCHDOG_USEC"] = str(int(SILENT_S * 1e6))
        if member.socket is not None:
            os.environ["NOTIFY_SOCKET"] = member.socket.getsockname()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._work(member.file)

    @staticmethod
    def _listen(member: Member) -> None:
        """Read the reports of a process."""
        with contextlib.suppress(BlockingIOError):
            while member.socket is not None:
                message: Any = member.socket.recv(MAX_MESSAGE_BYTES)
                member.heard_at = time.monotonic()
                if b"READY=1" in message.split(b"\n"):
                    member.settled = member.ready = True

    def _watch(self, member: Member) -> None:
        """Kill a process that hangs, or that does not end after a stop request."""
        now = time.monotonic()
        if member.process is None:
            return
        if self._leaving_since is not None:
            if now - self._leaving_since > STOP_S:
                member.process.kill()
        elif now - member.heard_at > (SILENT_S if member.ready else STARTING_S):
            self._log_event(
                "error", "daemon stands still and is killed", daemon=member.name, seconds=round(now - member.heard_at)
            )
            os.kill(int(member.process.pid or 0), signal.SIGABRT)  # the process then logs where it hangs
            member.heard_at = now

    def _ended(self, member: Member, code: int) -> None:
        now = time.monotonic()
        if member.process is not None:
            member.process.close()
        member.process, member.settled = None, True
        member.exit_code = code if code >= 0 else 128 - code
        member.failures = 0 if now - member.started_at > SOUND_S else member.failures + 1
        if self._leaving_since is not None or code == 0:
            self._log_event("info", "daemon has ended", daemon=member.name, exit_code=member.exit_code)
        elif code in FOR_PEOPLE:
            self._log_event(
                "error",
                "daemon is not started again",
                daemon=member.name,
                exit_code=code,
                hint="Correct the error that its log shows, then start it.",
            )
        else:
            delay = min(LAST_RETRY_S, FIRST_RETRY_S * 2 ** max(0, member.failures - 1))
            member.due_at = now + delay
            self._log_event(
                "warning", "daemon is started again", daemon=member.name, exit_code=member.exit_code, seconds=delay
            )

    def _notify(self) -> None:
        """Report the state of all processes to systemd."""
        if not self._ready and all(member.settled for member in self._members):
            self._ready = True
            self._notifier.ready()
        self._notifier.alive()
        down = [f"{m.name} ({m.exit_code})" for m in self._members if not m.running]
        rest = f"; down with exit code: {', '.join(down)}" if down else ""
        self._notifier.status(f"{len(self._members) - len(down)} of {len(self._members)} daemons run{rest}")
