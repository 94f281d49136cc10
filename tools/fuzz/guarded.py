"""Guarded memory: reading one byte after the end, or before the start, ends the process.

Kernels read raw addresses. A read beyond a buffer usually goes unnoticed. Here it is a crash, and a crash fails the
run.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE
PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


class Guarded:
    """One stretch of memory between two pages that nobody may touch, used for one buffer after the other."""

    def __init__(self, capacity: int) -> None:
        self.capacity = -(-capacity // PAGE) * PAGE
        self._map = mmap.mmap(-1, self.capacity + 2 * PAGE)
        self._memory = np.frombuffer(self._map, np.uint8)
        start = int(self._memory.__array_interface__["data"][0])
        for wall in (start, start + PAGE + self.capacity):
            if _LIBC.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(PAGE), PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def put(self, data: bytes | memoryview, *, at_start: bool = False) -> npt.NDArray[np.uint8]:
        """A copy of `data` that ends at the wall, or starts at the other one; valid until the next call."""
        if len(data) > self.capacity:
            raise ValueError(f"{len(data)} bytes, {self.capacity} fit")
        end = PAGE + (len(data) if at_start else self.capacity)
        place: npt.NDArray[np.uint8] = self._memory[end - len(data) : end]
        place[:] = np.frombuffer(data, np.uint8)
        return place
