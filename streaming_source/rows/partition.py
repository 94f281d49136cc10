"""Part of the stream that one Spark task reads: ranges of relay files, by path or with inline bytes.

A range ends at the end of an event group, or is a part of one large group. Such a part comes with the events that it
lacks: the group's GTID event and open table maps, and the event that ends the group. All values are plain, because
Spark pickles them.

* `bounds` is set only if a replayed range has its domains in another order than at its first read. Otherwise the range
  is exact.
* `rows` lists the transactions of which only some rows are needed.
* `file` is the primary's binlog file from which the range was copied.
* `carried` are the XA groups that were prepared before the range and are committed in it.
* With `lenient`, an XA COMMIT without its rows is no error, because the planner has checked it.
* `delivered` filters changes while tables are being read.
* `read` marks a range of snapshot rows.

The repr never shows bytes, because Spark prints partitions in error messages.
"""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from pyspark.sql.datasource import InputPartition

from replica.errors import DataLossError, RelayError
from replica.rows.decode.frontier import WHOLE, OpenEnds

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator, Sequence

    from replica.native.arrays import ArrayMemory
    from replica.rows.decode.batch import ChangeBatch, Groups
    from replica.rows.decode.decode import GroupChoice
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.rows.scan.xa import CarriedGroup
    from replica.schema.table import TableSchema
    from streaming_source.rows.statements import DdlRows
    from streaming_source.selection.resolver import SelectedTables

    Flags = np.ndarray[Any, np.dtype[np.bool_]]

Bounds = tuple[tuple[int, int], ...]  # (domain, sequence number) pairs

CatalogChanges: TypeAlias = "tuple[tuple[tuple[str, str], TableSchema | None], ...]"
"""Definitions of a range's tables, by (database, table), that differ from the query's catalog. None: the table is
unknown.
"""


@dataclass(frozen=True)
class GroupBounds:
    """Bounds of the needed groups of a range: in each domain, the groups after `lower` and up to `upper`.

    None is no bound.

    If `lower` does not list a domain, its groups are needed from the first one on. If `upper` does not list a domain,
    none of its groups is needed.
    """

    lower: Bounds | None
    upper: Bounds | None


@dataclass(frozen=True)
class RowBounds:
    """Bounds of the needed rows of one group, which is the transaction `seq_no` of `domain`.

    Attributes:
        first: the first needed ordinal.
        end: the ordinal after the last needed one; None for no bound.
    """

    domain: int
    seq_no: int
    first: int
    end: int | None


@dataclass(frozen=True)
class Surroundings:
    """Events that a part of a group lacks.

    Attributes:
        head: whole events to read before the part.
        tail: whole events to read after the part.
        statement: the place, in the range's file, of the text of the statement in which the part begins.
    """

    head: bytes = field(default=b"", repr=False)
    tail: bytes = field(default=b"", repr=False)
    statement: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.head) + len(self.tail) + self.statement[1] - self.statement[0]


@dataclass(frozen=True)
class ReadRows:
    """Metadata of a range of snapshot rows.

    The rows are valid after the transaction `seq_no` of `domain`, which `server_id` committed at `timestamp`.

    Attributes:
        timestamp: seconds since 1970; 0 if unknown.
        first: the number of the first row among all snapshot rows.
        lowest: whether the position of the rows has several domains. Sequence numbers of one domain have no order with
            those of another. So `_sequence` sorts these rows before all changes, and every later change supersedes
            them.
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
        """Number of bytes to read."""
        around = 0 if self.around is None else self.around.size
        return self.end - self.start + around + sum(part.size for part in self.carried)

    @property
    def place(self) -> str:
        """Place in the file, in a short form for error messages."""
        return f"bytes {self.start} to {self.end} of {self.path}{_copied_from(self.file)}"

    def data(self) -> memoryview:
        """Return the range as mapped memory.

        Pages are loaded while the decoder walks, so a transaction of 2 GB needs no 2 GB of memory. A part of a group is
        read into memory with the events around it, because parts are as small as partitions.

        Raises:
            DataLossError: the file was removed after the batch was planned.
            RelayError: this machine does not have the folder, or the file cannot be read.
        """
        with self._opened() as file:
            if self.around is None:
                return memoryview(mmap.mmap(file.fileno(), self.end, access=mmap.ACCESS_READ))[self.start :]
            return self._assemble(file, self.around)

    def _assemble(self, file: io.BufferedReader, around: Surroundings) -> memoryview:
        """Join the part with the events around it, in memory that is reused when no view of it is left."""
        view = _memory().take(around.size + self.end - self.start).data
        at = len(around.head)
        view[:at] = around.head
        for first, last in (around.statement, (self.start, self.end)):
            file.seek(first)
            if file.readinto(view[at : at + last - first]) != last - first:
                raise OSError("the file is shorter")
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
                    f"{name}, a file of snapshot rows, is no longer in {folder}.",
                    hint="Start the query again: it reads these rows again, as they were.",
                ) from None
            raise DataLossError(
                f"{name} is no longer in the relay log {folder}: it was removed while its batch was being read.",
                hint="At relay_max_bytes, a daemon removes files that a slow query still needs. Raise "
                "relay_max_bytes, or set slow_readers=pause for the daemon.",
            ) from None
        except (OSError, ValueError) as error:
            raise _not_here(self.path, self.end, error) from None

    def carried_groups(self) -> list[CarriedGroup]:
        """Return the prepared groups that the range commits."""
        return _carried(self.carried)

    def inline(self) -> InlineRange:
        """Return the same range with inline bytes."""
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
    """Range of a relay file with its bytes, for executors that cannot read the driver's files."""

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
        """Number of inline bytes."""
        return len(self.content) + sum(part.size for part in self.carried)

    @property
    def place(self) -> str:
        """Place in the file from which the bytes were copied, in a short form for error messages."""
        return f"{len(self.content)} bytes in the task{_copied_from(self.file)}"

    def data(self) -> memoryview:
        return memoryview(self.content)

    def carried_groups(self) -> list[CarriedGroup]:
        """Return the prepared groups that the range commits."""
        return _carried(self.carried)


ChangeRange: TypeAlias = "MappedRange | InlineRange"


@dataclass(frozen=True)
class ChangePartition(InputPartition):
    """Adjacent ranges in the order of the stream, several if one would be too little work for a task.

    Attributes:
        ranges: the ranges.
        lost: tables whose snapshot rows the batch lacks, with the reasons, for a program that re-snapshots them.
    """

    ranges: tuple[ChangeRange, ...]
    lost: tuple[tuple[tuple[str, str], str], ...] = ()

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return sum(part.size for part in self.ranges)

    def inline(self) -> ChangePartition:
        """Return the same partition with all bytes inline."""
        return replace(self, ranges=tuple(r.inline() if isinstance(r, MappedRange) else r for r in self.ranges))


@cache
def _memory() -> ArrayMemory:
    """Return this process's memory for parts. The next part reuses the pages of the last one."""
    from replica.native.arrays import ArrayMemory  # imports numpy, as the decoder does

    return ArrayMemory()


def _copied_from(file: str) -> str:
    return f", copied from the primary's {file}" if file else ""


def _not_here(path: str, end: int, error: Exception) -> RelayError:
    return RelayError(
        f"relay file {path} up to byte {end} cannot be read here ({error}).",
        hint="On a cluster set transport=inline, or put relayDir on storage that driver and executors share.",
    )


def _carried(parts: Sequence[ChangeRange]) -> list[CarriedGroup]:
    from replica.rows.scan.xa import CarriedGroup  # imports numba, which planning on Spark's side must not wait for

    return [CarriedGroup(part.data(), part.checksum) for part in parts]


# `RangeChoice` takes the partition's bounds and the plan's selection. It returns a mask of the groups to decode, a
# mask of the rows of a batch to keep, and the statements with their places. Without bounds and statements it returns
# None, which costs nothing.


class RangeChoice:
    """Choice of groups and rows in one range.

    Attributes:
        statements: the DDL rows of the range; None if the query does not ask for DDL.
    """

    def __init__(
        self,
        tables: SelectedTables,
        statements: DdlRows | None,
        bounds: GroupBounds | None = None,
        rows: Sequence[RowBounds] = (),
    ) -> None:
        self._filter = tables.filter
        self._statements = statements
        self._bounds = bounds
        self._rows = rows

    @property
    def of_groups(self) -> GroupChoice | None:
        """Function that chooses groups for the decoder; None if there is no filter, no bound and no DDL to find."""
        filtered = self._filter is not None or self._bounds is not None or self._statements is not None
        return self.groups if filtered else None

    def groups(self, groups: Groups) -> Flags:
        """Return a mask of the groups to decode, shape (groups,), bool."""
        wanted = np.ones(len(groups), np.bool_) if self._filter is None else self._filter.groups(groups)
        if self._bounds is not None:
            wanted &= wanted_groups(self._bounds, groups)
        if self._statements is not None:
            begun = wanted.copy()
            for part in self._rows:  # the first part of a transaction has its statements
                if part.first:
                    begun &= ~_named(part, groups)
            self._statements.find(groups, begun)
        return wanted

    def rows(self, changes: ChangeBatch) -> Flags | None:
        """Return a mask of the rows of a batch to keep, shape (rows,), bool. None: keep all rows."""
        if not self._rows:
            return changes.kept
        wanted = [wanted_rows(part, changes) for part in self._rows]
        return np.logical_and.reduce(wanted if changes.kept is None else [changes.kept, *wanted])

    def before(self, changes: ChangeBatch) -> list[tuple[int, ChangeBatch]]:
        """Return the statements before rows of this batch, each with the index of the following row."""
        return [] if self._statements is None else self._statements.before(changes)

    def rest(self) -> Iterator[ChangeBatch]:
        """Yield the statements after the last row."""
        if self._statements is not None:
            yield from self._statements.rest()


def wanted_groups(bounds: GroupBounds, groups: Groups) -> Flags:
    """Return a mask of the needed groups of a range, shape (groups,), bool."""
    wanted = np.ones(len(groups), np.bool_)
    seq_no = groups.seq_no.view(np.uint64)
    for domain, number in bounds.lower or ():
        wanted &= (groups.domain != domain) | (seq_no > np.uint64(number))
    if bounds.upper is not None:
        delivered = np.zeros(len(groups), np.bool_)
        for domain, number in bounds.upper:
            delivered |= (groups.domain == domain) & (seq_no <= np.uint64(number))
        wanted &= delivered
    return wanted


def wanted_rows(part: RowBounds, changes: ChangeBatch) -> Flags:
    """Return a mask of the needed rows of a batch, shape (rows,), bool.

    All rows of groups that `part` does not name are needed.
    """
    wanted = changes.ordinal >= part.first
    if part.end is not None:
        wanted &= changes.ordinal < part.end
    return np.asarray(wanted | ~_named(part, changes.groups)[changes.group])


def _named(part: RowBounds, groups: Groups) -> Flags:
    return np.asarray((groups.domain == part.domain) & (groups.seq_no.view(np.uint64) == np.uint64(part.seq_no)))
