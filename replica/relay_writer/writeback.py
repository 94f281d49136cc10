"""Start the write-back of appended bytes long before the sync (Linux sync_file_range).

An fsync takes as long as the bytes that are still in memory, and an ACK may wait for it. The call is only a hint: it
makes nothing durable, and errors appear at the fsync. Without the system call, nothing happens.
"""

from __future__ import annotations

import ctypes
from typing import Any

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: start the write-back without waiting


def _find() -> Any:
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_sync_file_range = _find()


def begin_writing(descriptor: int, begin: int, end: int) -> None:
    """Start to write bytes [begin, end) of the file to disk."""
    if _sync_file_range is not None and end > begin:
        _sync_file_range(descriptor, begin, end - begin, _WRITE)
