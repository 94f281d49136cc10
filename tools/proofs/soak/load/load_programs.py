"""External programs that write to a server, run once to their end or again and again until they are stopped.

In: a log file, and commands. Raised: an AssertionError with the end of the log if a program fails or ends early.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

END_S = 60.0
LOG_TAIL = 2000


class LoadPrograms:
    """Processes with one log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running: list[subprocess.Popen[bytes]] = []

    def finish(self, command: Sequence[str]) -> None:
        """Run a program to its end."""
        with self._process(command) as process:
            assert process.wait() == 0, self.log

    def start(self, command: Sequence[str]) -> None:
        self._running.append(self._process(command))

    def check(self) -> None:
        """Raise if one has ended."""
        ended = [process.args for process in self._running if process.poll() is not None]
        assert not ended, f"a load has ended: {ended}\n{self.log}"

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
        script = Path(command[1])  # a script of sysbench that is not its own finds the files beside it by this
        environment = os.environ | ({"LUA_PATH": f"{script.parent}/?.lua;;"} if script.is_absolute() else {})
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)
