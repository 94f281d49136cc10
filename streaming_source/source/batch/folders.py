"""Folders in which batch reads of a server keep fetched data: one private folder for each range.

Spark asks for the partitions of a DataFrame once, reads them at every action, and never says that it has finished. So a
folder stays while its driver process exists and reads the folder from time to time. A read that needs a folder removes
folders whose driver has ended, and folders that were not read for KEEP_S. If folders exceed `max_bytes`, it removes the
least recently read ones, but none read within BUSY_S. Folders are in the temp folder, or in the user's relayDir, which
may be on storage that executors share. `passing_base` is for a caller that knows when its reads end, such as an audit.

Only the DataFrame that fetched a range reads it, because after a reset of the server the same positions name other
transactions. A folder of that name that others may write is an error, and so are ranges that together are too large.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import RelayError
from replica.relay_log.directory.disk import replace_file
from replica.relay_log.log import RelayLog
from streaming_source.driver.deployment import (
    MAX_QUERIES,
    DriverProcess,
    is_free,
    lives,
    private_base,
    private_folder,
    this_driver,
    this_process,
)
from streaming_source.offsets.data_loss import Losses
from streaming_source.ranges.cutting import Origin, origin_of
from streaming_source.ranges.end import end_of_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.errors import RelayFileRemovedError
    from replica.handshake.start.start import Latest, ServerEnd
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions

KEEP_S: Final = 24 * 3600.0
"""Seconds after which an unread folder is removed. A notebook may pause over night. After that, its DataFrame raises an
error that its rows are deleted, and has to be loaded again.
"""
BUSY_S: Final = 600.0
"""Seconds for which a folder counts as being read. A task of a few megabytes takes seconds."""
STATE_NAME: Final = "batch.json"
_PASSING: Final = "passing"


class BatchFolder(NamedTuple):
    """Folder of one range.

    Attributes:
        complete: whether the folder holds the whole range already.
    """

    path: Path
    complete: bool


class _State(NamedTuple):
    complete: bool
    driver: DriverProcess
    used: float


def take_folder(options: SourceOptions, key: str) -> BatchFolder:
    """Take the folder of the range that `key` identifies. The caller fetches missing data and calls `finish`.

    Raises:
        RelayError: the ranges of running reads fill `relayMaxBytes`, or a folder is not private.
    """
    base = _base(options)
    _clean(base, options.connection.relay_max_bytes)
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    for number in range(1, MAX_QUERIES + 1):
        folder = private_folder(base / f"batch-{name}-{number}")
        state = _state(folder)
        if state is not None and state.complete:
            touch(folder)
            return BatchFolder(folder, complete=True)
        if is_free(folder):
            _write(folder, complete=False)
            return BatchFolder(folder, complete=False)
    raise RelayError(f"{MAX_QUERIES} reads of this range are being planned.", hint="Load it once and share it.")


def finish(folder: Path) -> None:
    """Record that the folder holds the whole range."""
    _write(folder, complete=True)


def touch(folder: Path) -> None:
    """Record that the folder is being read. If the folder was removed, its reader raises the error."""
    with contextlib.suppress(OSError):
        os.utime(folder / STATE_NAME)


def _base(options: SourceOptions) -> Path:
    if options.relay_dir is None:
        return private_base()
    options.relay_dir.mkdir(parents=True, exist_ok=True)
    return options.relay_dir


def _clean(base: Path, max_bytes: int) -> None:
    """Remove folders that are not read any more, and those over the size limit."""
    kept: list[tuple[float, Path]] = []
    for folder in base.glob("batch-*"):
        state = _state(folder)
        if state is None or not is_free(folder):
            continue
        idle_s = time.time() - state.used
        if idle_s > KEEP_S or not lives(state.driver):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            kept.append((idle_s, folder))
    total = {folder: _size(folder) for _, folder in kept}
    for idle_s, folder in sorted(kept, reverse=True):
        if sum(total.values()) <= max_bytes or idle_s < BUSY_S:
            break
        shutil.rmtree(folder, ignore_errors=True)
        del total[folder]
    if sum(total.values()) > max_bytes:
        raise RelayError(
            f"batch reads of this account have fetched {sum(total.values()) >> 20} MB into {base}, and are reading it.",
            hint="Wait for them, read shorter ranges, or raise relayMaxBytes.",
        )


def _size(folder: Path) -> int:
    sizes = 0
    for file in folder.rglob("*"):  # the rows of tables are in a folder of their own
        with contextlib.suppress(FileNotFoundError):
            sizes += file.stat().st_size
    return sizes


@contextlib.contextmanager
def passing_base(beside: Path | None) -> Iterator[Path]:
    """Give a base for batch reads that end with the block, and remove it then, with all that they fetched.

    Bases of processes that ended inside of their block are removed, too.

    Args:
        beside: the folder to create it in; None for the account's private folder.
    """
    parent = private_base() if beside is None else beside
    parent.mkdir(parents=True, exist_ok=True)
    for folder in parent.glob(f"{_PASSING}-*"):
        _, pid, started, _ = folder.name.split("-")
        if not lives(DriverProcess(int(pid), int(started))):
            shutil.rmtree(folder, ignore_errors=True)
    own = this_process()
    base = private_folder(parent / f"{_PASSING}-{own.pid}-{own.started}-{secrets.token_hex(4)}")
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _state(folder: Path) -> _State | None:
    """Return the folder's state; None if no read of this account has taken the folder, or a read is just taking it."""
    try:
        content = json.loads((folder / STATE_NAME).read_text(encoding="utf-8"))
        used = (folder / STATE_NAME).stat().st_mtime
        return _State(bool(content["complete"]), DriverProcess(*map(int, content["driver"])), used)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(folder: Path, *, complete: bool) -> None:
    content = {"complete": complete, "driver": list(this_driver())}
    replace_file(folder / STATE_NAME, json.dumps(content).encode())


# `FetchedFeed` takes the folder and the offset at which the range begins. A place outside of the range is an error.


class FetchedFeed:
    """Feed of one range. It removes no files."""

    started = True
    full = False
    epoch = 0
    down_s = 0.0

    def __init__(self, directory: Path, begin: SourceOffset) -> None:
        self.log = RelayLog(directory)
        self.losses = Losses()
        self._begin = begin

    def starting_offset(self) -> SourceOffset:
        return self._begin

    def start(self, offset: SourceOffset) -> SourceOffset:
        return offset

    def release(self, keep_from: RelayLocation) -> None:
        """Keep all files. They exist as long as the folder."""

    def restart_after(self, error: RelayFileRemovedError) -> None:
        raise error  # this process removes no file, so another program did

    def head(self) -> RelayHead:
        head = self.log.head()
        if head is None:
            raise RelayError(f"{self.log.directory} was removed while it was being planned.", hint="load() again.")
        return head

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool:  # noqa: ARG002  (no groups arrive)
        if self.head().location > location:
            return True
        raise RelayError(
            f"{self.log.directory} ends at {self.head().position}, before the end of the requested range.",
            hint="Another program changed it: load() again.",
        )

    def server_end(self) -> ServerEnd:
        return end_of_log(self.log, self.head())

    def is_last(self, place: BinlogPosition, uid: str | None) -> bool:  # noqa: ARG002  (no server is asked)
        return False

    def latest_and_prepared(self) -> Latest | None:
        return None

    def origin(self, location: RelayLocation) -> Origin:
        return origin_of(self.log, location)

    @property
    def spool(self) -> Path:
        return self.log.directory / "tables"

    def close(self) -> None:
        """Do nothing, because the feed holds no resources."""
