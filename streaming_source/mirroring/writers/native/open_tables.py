"""Tables that this process wrote before, kept open: each goes on from the commit that it knows.

To open a table, delta-rs reads its log since the last checkpoint, which takes as long as the rest of a small commit. A
kept table reads the commits that came since. It is given out once until it is kept again, so no two threads have it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOST_TABLES: Final = 200
"""Tables that a process keeps open."""
MOST_FILES: Final = 100
"""Files of a table that is kept: some 100 KB of what its log says of them, so all tables together have 20 MB."""


class _Kept(NamedTuple):
    table: DeltaTable
    commit: tuple[int, int]


_kept: OrderedDict[str, _Kept] = OrderedDict()
_lock = threading.Lock()


def opened(folder: str) -> DeltaTable:
    """Return the table of a folder as it is now.

    Raises:
        TableNotFoundError: there is none.
    """
    from deltalake import DeltaTable

    with _lock:
        kept = _kept.pop(folder, None)
    # A folder that was removed and made again, or restored, has other files under the same names.
    if kept is None or kept.commit != _commit(folder, kept.table.version()):
        return DeltaTable(folder)
    kept.table.update_incremental()
    return kept.table


def keep(folder: str, table: DeltaTable) -> None:
    """Keep a table open for `opened`, if it is small."""
    commit = _commit(folder, table.version())
    if commit is None or len(table.file_uris()) > MOST_FILES:
        return
    with _lock:
        _kept[folder] = _Kept(table, commit)
        while len(_kept) > MOST_TABLES:
            _kept.popitem(last=False)


def _commit(folder: str, version: int) -> tuple[int, int] | None:
    """Return what tells the file of a commit from another one under its name; None if there is none."""
    try:
        there = Path(folder, "_delta_log", f"{version:020d}.json").stat()
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns
