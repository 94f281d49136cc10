"""Memory for the columns that rows take over from their transactions, filled again by each batch.

Memory that is new for every batch comes from the system page by page, each set to zero first: that takes longer than
filling it. What was given for the batch before is overwritten, as the decoder's own buffers are.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class RowMemory:
    """Bytes by the name of what they hold; as many as the largest batch so far needed."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def bytes(self, name: str, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return `size` bytes, with whatever stands in them."""
        held = self._held.get(name)
        if held is None or len(held) < size:
            held = self._held[name] = np.empty(size, np.uint8)
        return held[:size]
