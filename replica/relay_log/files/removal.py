"""Remove relay files in an order in which a crash leaves no hole in the log and never loses its end.

A relay file is removed before its index. The next start removes an index without a file, but would scan a file without
an index. A file's name is off the disk before the next file is removed. After a power cut, the newest removed files
come back first, and never an old one alone. OSErrors are passed on.
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
    """Remove relay files in the given order: ascending from the oldest, or descending from the newest."""
    for number in numbers:
        relay_path(directory, number).unlink(missing_ok=True)
        sync_directory(directory)
        index_path(directory, number).unlink(missing_ok=True)


def remove_oldest(directory: Path, numbers: range) -> None:
    """Remove the oldest files, oldest first.

    The remaining files may be the only record of the log's end, so they are synced to disk first.
    """
    for number in range(numbers.stop, numbers.start, -1):
        if last_entry(index_path(directory, number)) is not None:
            break  # this file is sealed, and so are all files before it
        _sync_file(relay_path(directory, number))
    sync_directory(directory)
    remove_files(directory, numbers)


def _sync_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the caller removes the whole log
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
