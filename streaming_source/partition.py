"""What one Spark task reads: a range of a relay file, by path or with its bytes on board. Plain values that pickle.

Both end where event groups end. `bounds` is set only where a replayed range is interleaved in another order than when
it was first read; else the range itself is exact. `file` is the primary's binlog file it was copied from. `carried` are
the XA groups that were prepared before the range and are committed in it; with `lenient` an XA COMMIT without its rows
is no error (the planner has judged it). The repr never shows bytes: Spark prints partitions in error messages.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from replica.errors import DataLossError, RelayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.rows.xa import CarriedGroup

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
    carried: tuple[RelayRange, ...] = ()
    lenient: bool = False

    def data(self) -> memoryview:
        """The range, mapped: pages come in as the decoder walks, and a 2 GB transaction needs no 2 GB of memory.

        Raises:
            DataLossError: the file was removed after the batch was planned.
            RelayError: this machine does not have the folder, or the file cannot be read.

        """
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  (a task opens one file; pathlib costs an import)
                mapped = mmap.mmap(file.fileno(), self.end, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            folder, _, name = self.path.rpartition("/")
            if not os.access(folder, os.F_OK):
                raise _not_here(self.path, self.end, error) from None
            raise DataLossError(
                f"{name} is no longer in the relay log {folder}: it was removed while its batch was being read.",
                hint="A daemon removes files that a slow query still needs at relay_max_bytes: raise that, or set its "
                "slow_readers=pause.",
            ) from None
        except (OSError, ValueError) as error:
            raise _not_here(self.path, self.end, error) from None
        return memoryview(mapped)[self.start :]

    def carried_groups(self) -> list[CarriedGroup]:
        return _carried(self.carried)

    def inline(self) -> InlineRange:
        """The same with its bytes on board."""
        carried = tuple(part.inline() for part in self.carried)
        return InlineRange(bytes(self.data()), self.checksum, self.file, self.bounds, carried, self.lenient)


@dataclass(frozen=True)
class InlineRange(InputPartition):
    """The same with the bytes themselves, for executors that do not see the driver's files."""

    content: bytes = field(repr=False)
    checksum: bool
    file: str = ""
    bounds: GroupBounds | None = None
    carried: tuple[InlineRange, ...] = ()
    lenient: bool = False

    def data(self) -> memoryview:
        return memoryview(self.content)

    def carried_groups(self) -> list[CarriedGroup]:
        return _carried(self.carried)


ChangePartition = RelayRange | InlineRange


def _not_here(path: str, end: int, error: Exception) -> RelayError:
    return RelayError(
        f"relay file {path} up to byte {end} cannot be read here ({error}).",
        hint="On a cluster set transport=inline, or put relayDir on storage that driver and executors share.",
    )


def _carried(parts: Sequence[ChangePartition]) -> list[CarriedGroup]:
    from replica.rows.xa import CarriedGroup  # brings numba, which planning on Spark's side must not wait for

    return [CarriedGroup(part.data(), part.checksum) for part in parts]
