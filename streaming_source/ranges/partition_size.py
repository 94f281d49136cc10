"""The size of the partitions of a micro-batch: as many partitions as cores, but none too small to be worth a task.

A task costs Spark some 30 ms, in which a core decodes 4 MB and more. A partition of more than 32 MB keeps one core busy
after the others have finished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 32 << 20
FLOOR_BYTES: Final = 64 << 10
"""Least bytes of a partition with minPartitions: the distance at which group ends are known."""


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The rule for one query. `cores` share a batch. `least`: the minimum of partitions; None for no minimum."""

    cores: int = 1
    least: int | None = None

    def bytes(self, total: int) -> int:
        """Return the size in bytes of the partitions of a batch of `total` bytes."""
        size = min(max(-(-total // self.cores), LEAST_BYTES), MOST_BYTES)
        if total > size:
            size = -(-total // -(-total // size))  # equal sizes, so that none gets a small rest
        if self.least is not None:
            size = min(size, -(-total // self.least))
        return max(size, FLOOR_BYTES)
