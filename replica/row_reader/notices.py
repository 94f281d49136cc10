"""Notices of a reading: lines on standard error, each printed once, and the exit code that they cause."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from replica.plain_text import one_line

if TYPE_CHECKING:
    from replica.errors import ReplicaError

MAX_NOTICES: Final = 1000
"""Notices that are printed; more are only counted. A file of a million unnamed tables must not fill memory or terminal.
"""


@dataclass(slots=True)
class Notices:
    """The notices so far. `exit_code` is not 0 after requested rows were omitted."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    exit_code: int = 0
    unsaid: int = 0
    _said: set[str] = field(default_factory=set)

    def say(self, text: str) -> None:
        """Print a notice, unless it was printed before."""
        if text in self._said:
            return
        if len(self._said) >= MAX_NOTICES:
            self.unsaid += 1
            return
        self._said.add(text)
        print(f"mariadb-replica: {one_line(text)}", file=self.stream, flush=True)

    def close(self) -> None:
        """Print the number of notices that were not shown, if any."""
        if self.unsaid:
            print(f"mariadb-replica: {self.unsaid} more notices were not shown", file=self.stream, flush=True)

    def left_out(self, error: ReplicaError, *, where: str = "") -> None:
        """Report requested rows that cannot be shown; the dump continues, and its exit code shows the error."""
        self.exit_code = self.exit_code or error.exit_code
        self.say(f"{where}{error}")
