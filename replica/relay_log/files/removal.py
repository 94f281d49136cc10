"""The removal of relay files so that a crash between any two steps leaves a log without a hole, and one that knows its
end.

The relay file goes before its sidecar: the next start removes a sidecar without a file, but walks a file without a
sidecar. A file's name is off the disk before the next one's goes: a power cut brings back the newest of them, never an
old one alone. Raises OSError as the system does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from replica.relay_log.directory.disk import sync_directory
from replica.relay_log.files.index import last_entry
from replica.relay_log.location import index_path, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def remove_files(directory: Path, numbers: Iterable[int]) -> None:
    """Remove relay files in the order given: ascending from the oldest, or descending from the newest."""
    for number in numbers:
        relay_path(directory, number).unlink(missing_ok=True)
        sync_directory(directory)
        index_path(directory, number).unlink(missing_ok=True)


def remove_oldest(directory: Path, numbers: range) -> None:
    """Remove files that others follow, oldest first.

    The files behind them may be all that is left to tell where the log ends, so those go to disk before.
    """
    for number in range(numbers.stop, numbers.start, -1):
        if last_entry(index_path(directory, number)) is not None:
            break  # sealed, and so are all before it
        _sync_file(relay_path(directory, number))
    sync_directory(directory)
    remove_files(directory, numbers)


def _sync_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the caller gives up the whole log
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
