"""Reused memory for the columns that rows take from their transactions.

New memory for every batch comes from the system page by page, each filled with zeros, which takes longer than writing
the columns. Each batch overwrites the arrays of the previous one, as the decoder's own buffers do.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class RowMemory:
    """Byte arrays by name, as large as the largest batch so far needed."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def bytes(self, name: str, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return an array of `size` bytes, not initialized. The next call with this name returns the same memory."""
        held = self._held.get(name)
        if held is None or len(held) < size:
            held = self._held[name] = np.empty(size, np.uint8)
        return held[:size]
