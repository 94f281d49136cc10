"""Memory for the records of a scan, filled again by the next one, for readers that are done with a range by then.

New memory comes from the system page by page, each set to zero first, which takes as long as the scan itself. What a
scan of more than KEPT_BYTES was given is not kept: a large transaction would hold it for as long as the process lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from replica.native.record import Records

KEPT_BYTES: Final = 16 << 20
"""The most that is kept of each kind of record: twice what a range of 8 MB takes, as tasks read them."""


class RecordMemory:
    """Arrays by the type of their records."""

    def __init__(self) -> None:
        self._held: dict[str, Records] = {}

    def take(self, name: str, dtype: np.dtype[Any], count: int) -> Records:
        """Return `count` records, with whatever stands in them; those given under this name before are overwritten."""
        held = self._held.get(name)
        if held is None or len(held) < count:
            held = np.empty(count, dtype)
            if held.nbytes <= KEPT_BYTES:
                self._held[name] = held
        return held[:count]
