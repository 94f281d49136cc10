"""The notices of a reading, beside its output: lines on standard error, each once, and the exit code they end in."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from replica.plain_text import one_line

if TYPE_CHECKING:
    from replica.errors import ReplicaError

MAX_NOTICES: Final = 1000
"""More are counted, not shown: a file of a million tables without names must not fill memory or terminal."""


@dataclass(slots=True)
class Notices:
    """The notices so far. `exit_code` is not 0 once something was left out that was asked for."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    exit_code: int = 0
    unsaid: int = 0
    _said: set[str] = field(default_factory=set)

    def say(self, text: str) -> None:
        if text in self._said:
            return
        if len(self._said) >= MAX_NOTICES:
            self.unsaid += 1
            return
        self._said.add(text)
        print(f"mariadb-replica: {one_line(text)}", file=self.stream, flush=True)

    def close(self) -> None:
        """Say the last word, if there was more to say than was said."""
        if self.unsaid:
            print(f"mariadb-replica: {self.unsaid} more notices were not shown", file=self.stream, flush=True)

    def left_out(self, error: ReplicaError, *, where: str = "") -> None:
        """Report rows that were asked for and cannot be shown; the dump goes on without them, and says so at its
        end.
        """
        self.exit_code = self.exit_code or error.exit_code
        self.say(f"{where}{error}")
