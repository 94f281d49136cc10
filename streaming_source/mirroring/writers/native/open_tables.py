"""Cache of open Delta tables that this process has written.

To open a table, delta-rs reads its log since the last checkpoint, which takes as long as the rest of a small commit. A
cached table reads only the commits since its last use. `opened` takes a table out of the cache, and `keep` puts it
back, so no two threads share one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOST_TABLES: Final = 200
"""Most tables in the cache of a process."""
MOST_FILES: Final = 100
"""Most files of a cached table. Their log entries take some 100 KB, so a full cache takes 20 MB."""


class _Kept(NamedTuple):
    table: DeltaTable
    commit: tuple[int, int]


_kept: OrderedDict[str, _Kept] = OrderedDict()
_lock = threading.Lock()


def opened(folder: str) -> DeltaTable:
    """Return the current version of the table in a folder.

    Raises:
        TableNotFoundError: there is no table.
    """
    from deltalake import DeltaTable

    with _lock:
        kept = _kept.pop(folder, None)
    # A folder that was removed and created again, or restored, has other files under the same names.
    if kept is None or kept.commit != _commit(folder, kept.table.version()):
        return DeltaTable(folder)
    kept.table.update_incremental()
    return kept.table


def keep(folder: str, table: DeltaTable) -> None:
    """Keep a table in the cache for `opened`, if it is small."""
    commit = _commit(folder, table.version())
    if commit is None or len(table.file_uris()) > MOST_FILES:
        return
    with _lock:
        _kept[folder] = _Kept(table, commit)
        while len(_kept) > MOST_TABLES:
            _kept.popitem(last=False)


def _commit(folder: str, version: int) -> tuple[int, int] | None:
    """Return inode and time of a commit's file, which differ if another file replaced it; None if there is no file."""
    try:
        there = Path(folder, "_delta_log", f"{version:020d}.json").stat()
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns
