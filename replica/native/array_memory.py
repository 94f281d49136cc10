"""Memory for large arrays that is used again once no array of it is left.

In: sizes. Out: arrays of bytes with any content. Fresh memory costs as much as what is written into it, because the
system clears every page: a sixth of the time of reading a table was spent on that. An array, or any view of it, keeps
its memory; when the last of them is gone, in whatever thread, the memory is free for the next.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

SMALLEST: Final = 1 << 22
"""Smaller arrays are left to the allocator, which does this for them."""
MOST_FREE: Final = 4
"""Free pieces that are kept, of 20 to 34 MB as a rule: as many as hold chunks at once (spool.HELD_BYTES)."""


class ArrayMemory:
    """The free pieces. Every method may be called by any thread: each is one step of a deque at a time."""

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
        if len(piece) < size:  # one that is too small is given up: chunks have grown
            piece = np.empty(size, np.uint8)
        return np.asarray(_Lease(piece, self))[:size]

    def give_back(self, piece: Bytes) -> None:
        """Keep a piece that no array uses."""
        if not self._closed:
            self._free.append(piece)

    def close(self) -> None:
        """Let go of everything, now and later."""
        self._closed = True
        self._free.clear()


class _Lease:
    """The base of an array, which numpy lets go of with the last view of it."""

    def __init__(self, piece: Bytes, memory: ArrayMemory) -> None:
        self._piece = piece
        self._memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._piece.__array_interface__

    def __del__(self) -> None:
        self._memory.give_back(self._piece)
