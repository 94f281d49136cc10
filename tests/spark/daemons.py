"""A real daemon beside a test's primary: `mariadb-replica run` as a process that can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from replica.protocol.gtid import GtidPosition, covers
from replica.relay_log.directory.readers import registered_readers
from replica.relay_log.log import RelayLog
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

ROOT = Path(__file__).parents[2]
STOP_TIMEOUT_S = 30.0


class Daemon:
    """`with Daemon(primary, folder, "--retain=1s") as daemon:`; its log is in `log`."""

    def __init__(self, primary: MariaDb, folder: Path, *arguments: str, port: int = 0) -> None:
        self.relay_dir = folder
        self.log = folder.with_name(f"{folder.name}.log")
        self._primary = primary
        self._arguments = arguments
        self._port = port or primary.port
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *more: str) -> None:
        """Start (again); returns before it is connected."""
        arguments = [
            *("--host", self._primary.host, "--port", str(self._port), "--user", "repl"),
            *("--relay-dir", str(self.relay_dir), "--start", "earliest", "--backoff-max", "0.5"),
            *("--min-free-bytes", "1m", *self._arguments, *more),
        ]
        environment = os.environ | {"MARIADB_REPLICA_PASSWORD": "replica-secret", "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "replica", "run", *arguments], stdout=log, stderr=log, cwd=ROOT, env=environment
            )

    def forget(self) -> None:
        """Take its folder away, at one moment for whoever reads there."""
        gone = self.relay_dir.rename(self.relay_dir.with_name(f"{self.relay_dir.name}-gone"))
        shutil.rmtree(gone)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send a signal: SIGSTOP and SIGCONT make a replica that is connected and acknowledges nothing."""
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(STOP_TIMEOUT_S)

    def has(self, position: str) -> bool:
        """Whether the relay log holds everything up to a position."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text(errors="replace")[-3000:]
        head = RelayLog(self.relay_dir).head()
        return head is not None and bool(head.location.offset) and covers(head.position, GtidPosition.parse(position))

    def is_read_by(self, name: str) -> bool:
        """Whether a reader has told that it needs nothing of what the primary has written so far."""
        goal = GtidPosition.parse(self._primary.gtid_binlog_pos())
        readers = registered_readers(self.relay_dir)
        return any(covers(GtidPosition.parse(reader.position), goal) for reader in readers if reader.name == name)

    def catch_up(self) -> None:
        """Wait until it has what the primary has."""
        position = self._primary.gtid_binlog_pos()
        wait_until(lambda: self.has(position), f"the daemon reaches {position}")
