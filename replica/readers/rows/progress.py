"""Progress and notices of a reading, on standard error.

`DumpProgress` shows nothing, and `TerminalProgress` shows a bar. `Notices` prints each notice once and keeps the exit
code. Standard output is left to the rows.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TextIO

from replica.protocol.plain_text import one_line
from replica.readers.files.binlog import STANDARD_INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress as Bar

    from replica.errors import ReplicaError
    from replica.readers.files.binlog import BinlogFile

SILENT_S: Final = 2.0
"""Seconds before progress is shown."""


class DumpProgress:
    """Progress that shows nothing. Base class of progress that a terminal shows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop showing progress."""

    def advance(self, binlog: BinlogFile, end: int) -> None:
        """Record that the reading has reached offset `end` of this file."""


class TerminalProgress(DumpProgress):
    """Progress as a bar on a terminal.

    The length of the bar is the size of all files on disk, unknown with standard input.
    """

    def __init__(self, files: Sequence[str]) -> None:
        sizes = [None if file == STANDARD_INPUT else _size(file) for file in files]
        known = [size for size in sizes if size is not None]
        self._total = sum(known) if len(known) == len(sizes) else None
        self._start = time.monotonic()
        self._before = 0  # bytes of the files that are done
        self._binlog: BinlogFile | None = None
        self._in_file = 0
        self._bar: Bar | None = None

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, binlog: BinlogFile, end: int) -> None:
        if binlog is not self._binlog:
            self._before += self._in_file
            self._binlog = binlog
        self._in_file = end if binlog.seekable else binlog.consumed
        if self._bar is None and time.monotonic() - self._start > SILENT_S:
            self._bar = self._made()
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._before + self._in_file)

    def _made(self) -> Bar:
        # Imported here, because most dumps end before a bar is shown.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

        bar = Progress(
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task("dump", total=self._total)
        return bar


def watched(files: Sequence[str]) -> DumpProgress:
    """Return a progress bar for a search on a terminal, because a search prints nothing before its end."""
    return TerminalProgress(files) if sys.stderr.isatty() else DumpProgress()


def _size(file: str) -> int | None:
    try:
        return Path(file).stat().st_size
    except OSError:
        return None  # opening the file reports the error


MAX_NOTICES: Final = 1000
"""Maximum number of printed notices; further ones are only counted. A file can contain a million unnamed tables, whose
notices must not fill memory or the terminal.
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
