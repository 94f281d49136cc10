"""Reusable memory for the records of a scan, for readers that have finished with a range before the next scan.

The system zeroes new pages, which takes as long as the scan itself. Arrays beyond KEPT_BYTES are not kept: after a
large transaction they would occupy memory for the life of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from replica.native.record import Records

KEPT_BYTES: Final = 16 << 20
"""Maximal bytes kept per kind of record: twice what a range of 8 MB takes, which is the size that tasks read."""


class RecordMemory:
    """Kept arrays by the kind of their records."""

    def __init__(self) -> None:
        self._held: dict[str, Records] = {}

    def take(self, name: str, dtype: np.dtype[Any], count: int) -> Records:
        """Return `count` uninitialised records; earlier records of the same name are overwritten."""
        held = self._held.get(name)
        if held is None or len(held) < count:
            held = np.empty(count, dtype)
            if held.nbytes <= KEPT_BYTES:
                self._held[name] = held
        return held[:count]
