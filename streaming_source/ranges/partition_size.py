"""The size of the partitions of a micro-batch: as many as there are cores to read them, and no smaller than pays.

In: the bytes of a batch. Out: bytes of a partition. A task costs Spark some 30 ms, in which a core decodes 4 MB and
more; and a partition of more than 32 MB keeps one core busy when the others have finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 32 << 20
FLOOR_BYTES: Final = 64 << 10
"""The least bytes of a partition with minPartitions: group ends are known this closely."""


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The rule for one query. `cores` share a batch; `least` partitions at any rate, None: as many as are worth it."""

    cores: int = 1
    least: int | None = None

    def bytes(self, total: int) -> int:
        """Return the size for a batch of `total` bytes."""
        size = min(max(-(-total // self.cores), LEAST_BYTES), MOST_BYTES)
        if total > size:
            size = -(-total // -(-total // size))  # alike: none is left with a rest
        if self.least is not None:
            size = min(size, -(-total // self.least))
        return max(size, FLOOR_BYTES)
