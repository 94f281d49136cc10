"""What one Spark task reads: a range of a relay file, by path or with its bytes on board. Plain values that pickle.

Both end where event groups end. `bounds` is set only where a replayed range is interleaved in another order than when
it was first read; else the range itself is exact. `file` is the primary's binlog file it was copied from. The repr
never shows bytes: Spark prints partitions in error messages.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from replica.errors import RelayError

Bounds = tuple[tuple[int, int], ...]  # (domain, sequence number) pairs


@dataclass(frozen=True)
class GroupBounds:
    """Groups wanted of a range: in each domain those after `lower` and up to `upper`; None bounds nothing.

    A domain that `lower` does not list is wanted from its first group, one that `upper` does not list not at all.
    """

    lower: Bounds | None
    upper: Bounds | None


@dataclass(frozen=True)
class RelayRange(InputPartition):
    """Bytes `start` to `end` of the relay file `path`, which the task opens itself."""

    path: str
    start: int
    end: int
    checksum: bool
    file: str = ""
    bounds: GroupBounds | None = None

    def data(self) -> memoryview:
        """The range, mapped: pages come in as the decoder walks, and a 2 GB transaction needs no 2 GB of memory.

        Raises:
            RelayError: this machine does not have the file.

        """
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  (a task opens one file; pathlib costs an import)
                mapped = mmap.mmap(file.fileno(), self.end, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise RelayError(
                f"relay file {self.path} up to byte {self.end} cannot be read here ({error}).",
                hint="On a cluster set transport=inline, or put relayDir on storage that driver and executors share.",
            ) from None
        return memoryview(mapped)[self.start :]


@dataclass(frozen=True)
class InlineRange(InputPartition):
    """The same with the bytes themselves, for executors that do not see the driver's files."""

    content: bytes = field(repr=False)
    checksum: bool
    file: str = ""
    bounds: GroupBounds | None = None

    def data(self) -> memoryview:
        return memoryview(self.content)


ChangePartition = RelayRange | InlineRange
