"""Let the kernel begin to write what was appended, long before it is synced (Linux sync_file_range).

What waits in memory at an fsync is what the fsync costs, and an acknowledgement may be waiting for it. A hint and no
promise: nothing is durable by it, errors show themselves at the fsync, and where there is no such call nothing happens.
"""

from __future__ import annotations

import ctypes
from typing import Any

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and do not wait


def _find() -> Any:
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_sync_file_range = _find()


def begin_writing(descriptor: int, begin: int, end: int) -> None:
    """Begin to write bytes [begin, end) of the file; mostly they are on their way when this returns."""
    if _sync_file_range is not None and end > begin:
        _sync_file_range(descriptor, begin, end - begin, _WRITE)
