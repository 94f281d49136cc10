"""The load that others wrote: sysbench, which scripts/get-sysbench fetches, as commands and as running processes.

In: a server, a database of it, a script and its sizes. Out: the command, to which `prepare` or `run` is added; tables
that are filled; processes that go on until they are stopped, and an error with their log if one ends before.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fixtures.installation import CACHE, PROJECT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fixtures.mariadb import MariaDb

PROGRAM = CACHE / "sysbench" / "sysbench"
END_S = 60.0
LOG_TAIL = 2000


def fetch_sysbench() -> None:
    """Fetch it as scripts/soak does, for tests that are not called by that."""
    subprocess.run([PROJECT / "scripts" / "get-sysbench", PROGRAM.parent], check=True, stdout=subprocess.DEVNULL)


def check_sysbench() -> None:
    assert PROGRAM.exists(), f"{PROGRAM} is missing: scripts/soak fetches it (scripts/get-sysbench)"


def sysbench(server: MariaDb, database: str, script: str | Path, *options: str) -> list[str]:
    account = [f"--mysql-user={server.user}", f"--mysql-password={server.password}", f"--mysql-db={database}"]
    place = [f"--mysql-host={server.host}", f"--mysql-port={server.port}"]
    return [str(PROGRAM), str(script), "--db-driver=mysql", *place, *account, *options]


class Sysbench:
    """Processes of sysbench with one log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running: list[subprocess.Popen[bytes]] = []

    def fill(self, command: Sequence[str]) -> None:
        with self._process([*command, "prepare"]) as process:
            assert process.wait() == 0, self.log

    def start(self, command: Sequence[str]) -> None:
        self._running.append(self._process([*command, "--time=0", "--events=0", "run"]))

    def check(self) -> None:
        """Raise if one has ended."""
        ended = [process.args for process in self._running if process.poll() is not None]
        assert not ended, f"sysbench has ended: {ended}\n{self.log}"

    def stop(self) -> None:
        """End all; a transaction that is open is rolled back."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(END_S)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL:]

    def _process(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        script = Path(command[1])  # one that is not sysbench's own finds the files beside it by this
        environment = os.environ | ({"LUA_PATH": f"{script.parent}/?.lua;;"} if script.is_absolute() else {})
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)
