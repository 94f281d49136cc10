"""Memory and addresses of arrays, for kernels.

`ArrayMemory.take` returns uninitialised byte arrays. The system zeroes fresh pages, which costs as much as filling
them: a sixth of the time of a snapshot read. An array, or any view of it, holds its memory. After the last reference is
released, in any thread, the memory is reused.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

SMALLEST: Final = 1 << 22
"""Bytes below which arrays are left to the allocator, which reuses memory itself."""
MOST_FREE: Final = 4
"""Number of free pieces that are kept, usually of 20 to 34 MB: as many as hold chunks at once (spool.HELD_BYTES)."""


class ArrayMemory:
    """The free pieces. Every method is safe in any thread, because each is one deque operation."""

    def __init__(self) -> None:
        self._free: deque[Bytes] = deque(maxlen=MOST_FREE)
        self._closed = False

    def take(self, size: int) -> Bytes:
        """Return an array of `size` bytes."""
        if size < SMALLEST:
            return np.empty(size, np.uint8)
        try:
            piece = self._free.pop()
        except IndexError:
            piece = np.empty(0, np.uint8)
        if len(piece) < size:  # drop a piece that is too small: chunks have grown
            piece = np.empty(size, np.uint8)
        return np.asarray(_Lease(piece, self))[:size]

    def give_back(self, piece: Bytes) -> None:
        """Keep a piece that no array uses any more."""
        if not self._closed:
            self._free.append(piece)

    def close(self) -> None:
        """Release all pieces, now and in future."""
        self._closed = True
        self._free.clear()


class _Lease:
    """Base of an array; numpy releases it with the last view."""

    def __init__(self, piece: Bytes, memory: ArrayMemory) -> None:
        self._piece = piece
        self._memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._piece.__array_interface__

    def __del__(self) -> None:
        self._memory.give_back(self._piece)


def address(array: npt.NDArray[Any]) -> int:
    """Return the address of the first byte; it is valid while the array is referenced."""
    return int(array.ctypes.data)  # __array_interface__ would describe the fields of records at each call
