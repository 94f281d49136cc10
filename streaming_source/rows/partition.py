"""The part of the stream that one Spark task reads: ranges of relay files, by path or with their bytes on board. Plain
values that pickle.

A range ends where event groups end, or is a part of one large group: then it brings the events that its bytes lack, the
group's GTID event and running table maps in front, the event that ends it behind. `bounds` is set only where a replayed
range is interleaved in another order than when it was first read; else the range itself is exact. `rows` are the
transactions of which only some rows are wanted. `file` is the primary's binlog file it was copied from. `carried` are
the XA groups that were prepared before the range and are committed in it; with `lenient` an XA COMMIT without its rows
is no error (the planner has judged it). `delivered` says which rows count while tables are being read; `read` marks a
range that holds rows of a table itself. The repr never shows bytes: Spark prints partitions in error messages.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import InputPartition

from replica.errors import DataLossError, RelayError
from replica.rows.decode.open_ends import WHOLE, OpenEnds

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

    from replica.native.array_memory import ArrayMemory
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.rows.scan.xa import CarriedGroup
    from replica.schema.table import TableSchema

Bounds = tuple[tuple[int, int], ...]  # (domain, sequence number) pairs

CatalogChanges: TypeAlias = "tuple[tuple[tuple[str, str], TableSchema | None], ...]"
"""What the tables of a range are, by (database, table), where the query's catalog says otherwise; None: unknown."""


@dataclass(frozen=True)
class GroupBounds:
    """Groups wanted of a range: in each domain those after `lower` and up to `upper`; None bounds nothing.

    A domain that `lower` does not list is wanted from its first group, one that `upper` does not list not at all.
    """

    lower: Bounds | None
    upper: Bounds | None


@dataclass(frozen=True)
class RowBounds:
    """Rows wanted of the group `seq_no` of `domain`: those with an ordinal from `first` on and below `end`, if any."""

    domain: int
    seq_no: int
    first: int
    end: int | None


@dataclass(frozen=True)
class Surroundings:
    """The events around a part of a group that it lacks: `head` and `tail` are whole events.

    `statement` is the place in the range's file of the text of the statement that runs where the part begins.
    """

    head: bytes = field(default=b"", repr=False)
    tail: bytes = field(default=b"", repr=False)
    statement: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.head) + len(self.tail) + self.statement[1] - self.statement[0]


@dataclass(frozen=True)
class ReadRows:
    """The rows of a range that were read from their table. They hold behind the transaction `seq_no` of `domain`, which
    `server_id` committed at `timestamp` (seconds, 0 where no one knows); `first` is the number of the first one among
    all rows read.

    `lowest`: the position that they hold at has several domains. Sequence numbers of one say nothing of another's, so
    `_sequence` puts these rows before all changes, and no later one of any domain is taken for an older word.
    """

    domain: int
    server_id: int
    seq_no: int
    timestamp: int
    first: int
    lowest: bool = False


@dataclass(frozen=True)
class MappedRange:
    """Bytes `start` to `end` of the relay file `path`, which the task opens itself."""

    path: str
    start: int
    end: int
    checksum: bool
    file: str = ""
    bounds: GroupBounds | None = None
    carried: tuple[MappedRange, ...] = ()
    lenient: bool = False
    rows: tuple[RowBounds, ...] = ()
    ends: OpenEnds = WHOLE
    around: Surroundings | None = None
    catalog: CatalogChanges = field(default=(), repr=False)
    delivered: DeliveredKeys | None = field(default=None, repr=False)
    read: ReadRows | None = None

    @property
    def size(self) -> int:
        """Bytes to read for it."""
        around = 0 if self.around is None else self.around.size
        return self.end - self.start + around + sum(part.size for part in self.carried)

    @property
    def place(self) -> str:
        """The place in the file, in the few words that an error has room for."""
        return f"bytes {self.start} to {self.end} of {self.path}{_copied_from(self.file)}"

    def data(self) -> memoryview:
        """Return the range, mapped: pages come in as the decoder walks, and a 2 GB transaction needs no 2 GB of memory.

        A part of a group is read into memory, with what it lacks around it: parts are as small as partitions.

        Raises:
            DataLossError: the file was removed after the batch was planned.
            RelayError: this machine does not have the folder, or the file cannot be read.
        """
        with self._opened() as file:
            if self.around is None:
                return memoryview(mmap.mmap(file.fileno(), self.end, access=mmap.ACCESS_READ))[self.start :]
            return self._put_together(file, self.around)

    def _put_together(self, file: io.BufferedReader, around: Surroundings) -> memoryview:
        """Put together the part with what it lacks, in memory that is used again once no one looks at it any more."""
        view = _memory().take(around.size + self.end - self.start).data
        at = len(around.head)
        view[:at] = around.head
        for first, last in (around.statement, (self.start, self.end)):
            file.seek(first)
            if file.readinto(view[at : at + last - first]) != last - first:
                raise OSError("it is shorter")
            at += last - first
        view[at:] = around.tail
        return view

    @contextmanager
    def _opened(self) -> Iterator[io.BufferedReader]:
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123  (a task opens few files; pathlib costs an import)
                yield file
        except FileNotFoundError as error:
            folder, _, name = self.path.rpartition("/")
            if not os.access(folder, os.F_OK):
                raise _not_here(self.path, self.end, error) from None
            if self.read is not None:
                raise RelayError(
                    f"{name}, rows of tables that were read, is no longer in {folder}.",
                    hint="Start the query again: it reads them again, as they were.",
                ) from None
            raise DataLossError(
                f"{name} is no longer in the relay log {folder}: it was removed while its batch was being read.",
                hint="A daemon removes files that a slow query still needs at relay_max_bytes: raise that, or set its "
                "slow_readers=pause.",
            ) from None
        except (OSError, ValueError) as error:
            raise _not_here(self.path, self.end, error) from None

    def carried_groups(self) -> list[CarriedGroup]:
        """Return the prepared groups that are committed in it."""
        return _carried(self.carried)

    def inline(self) -> InlineRange:
        """Return the same with its bytes on board."""
        return InlineRange(
            bytes(self.data()),
            self.checksum,
            file=self.file,
            bounds=self.bounds,
            carried=tuple(part.inline() for part in self.carried),
            lenient=self.lenient,
            rows=self.rows,
            ends=self.ends,
            catalog=self.catalog,
            delivered=self.delivered,
            read=self.read,
        )


@dataclass(frozen=True)
class InlineRange:
    """A range of a relay file with the bytes themselves, for executors that do not see the driver's files."""

    content: bytes = field(repr=False)
    checksum: bool
    file: str = ""
    bounds: GroupBounds | None = None
    carried: tuple[InlineRange, ...] = ()
    lenient: bool = False
    rows: tuple[RowBounds, ...] = ()
    ends: OpenEnds = WHOLE
    catalog: CatalogChanges = field(default=(), repr=False)
    delivered: DeliveredKeys | None = field(default=None, repr=False)
    read: ReadRows | None = None

    @property
    def size(self) -> int:
        """Bytes on board."""
        return len(self.content) + sum(part.size for part in self.carried)

    @property
    def place(self) -> str:
        """The place where it was in the file, in the few words that an error has room for."""
        return f"{len(self.content)} bytes in the task{_copied_from(self.file)}"

    def data(self) -> memoryview:
        """Return the range."""
        return memoryview(self.content)

    def carried_groups(self) -> list[CarriedGroup]:
        """Return the prepared groups that are committed in it."""
        return _carried(self.carried)


ChangeRange: TypeAlias = "MappedRange | InlineRange"


@dataclass(frozen=True)
class ChangePartition(InputPartition):
    """Neighbouring ranges in the order of the stream: several where one would be too little for a task."""

    ranges: tuple[ChangeRange, ...]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(part.size for part in self.ranges)

    def inline(self) -> ChangePartition:
        """Return the same with all bytes on board."""
        return ChangePartition(tuple(r.inline() if isinstance(r, MappedRange) else r for r in self.ranges))


@cache
def _memory() -> ArrayMemory:
    """Return the memory of this process for parts: the next one has that of the last one, whose pages are there."""
    from replica.native.array_memory import ArrayMemory  # brings numpy, as the decoder does

    return ArrayMemory()


def _copied_from(file: str) -> str:
    return f", copied from the primary's {file}" if file else ""


def _not_here(path: str, end: int, error: Exception) -> RelayError:
    return RelayError(
        f"relay file {path} up to byte {end} cannot be read here ({error}).",
        hint="On a cluster set transport=inline, or put relayDir on storage that driver and executors share.",
    )


def _carried(parts: Sequence[ChangeRange]) -> list[CarriedGroup]:
    from replica.rows.scan.xa import CarriedGroup  # brings numba, which planning on Spark's side must not wait for

    return [CarriedGroup(part.data(), part.checksum) for part in parts]
