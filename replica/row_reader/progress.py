"""Progress of a reading of files, on a terminal's standard error: bytes, rate, time left. Short readings show none."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from replica.files.opening import STANDARD_INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import Progress as Bar

    from replica.files.binlog import BinlogFile

SILENT_S: Final = 2.0
"""Seconds before progress is shown."""


class DumpProgress:
    """Progress that shows nothing, for a reading that is not watched."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove the bar."""

    def passed(self, binlog: BinlogFile, end: int) -> None:
        """Note that this file is done up to offset `end`."""


class TerminalProgress(DumpProgress):
    """Progress as a bar. Its length is the size of all files on disk, unknown with standard input."""

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

    def passed(self, binlog: BinlogFile, end: int) -> None:
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
    """Return the progress of a search, which prints nothing before its end: a bar on every terminal."""
    return TerminalProgress(files) if sys.stderr.isatty() else DumpProgress()


def _size(file: str) -> int | None:
    try:
        return Path(file).stat().st_size
    except OSError:
        return None  # opening the file reports the error
