"""Partitions of the range of a micro-batch.

`RangeCutter.partitions` takes the places in the relay log where the batch begins and ends. It returns partitions, by
path or with inline bytes, of a size that suits the batch and the cores that read it. Several tasks share a large
transaction, and small adjacent ranges share a task. Inline bytes beyond the limit of Spark's own messages are an error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import ConfigError, DataLossError
from replica.relay_log.directory.identity import source_of
from replica.relay_log.files.lookup import FileHead, read_file_head
from replica.relay_log.kernels.kernel_deframe import INDEX_EVERY_BYTES
from replica.relay_log.location import RelayLocation, relay_number, relay_path
from replica.relay_log.walks.last_event import fingerprint_at
from replica.relay_log.walks.xa import RangeNeeds, follow
from replica.rows.scan.xa import unprepared_error
from streaming_source.ranges.places import bytes_between
from streaming_source.rows.partition import CatalogChanges, ChangePartition, GroupBounds, MappedRange, RowBounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from replica.protocol.groups.fingerprint import Fingerprint
    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.relay_log.log import RelayLog, RelayRange
    from replica.rows.decode.frontier import DeliveredKeys
    from replica.rows.decode.row_index import RowIndex
    from streaming_source.offsets.offset import GroupPart, SourceOffset
    from streaming_source.ranges.large_groups import LargeGroups
    from streaming_source.ranges.places import OffsetPlace
    from streaming_source.selection.resolver import SelectedTables

    Ints = npt.NDArray[np.int64]
# A task costs Spark some 30 ms, in which a core decodes 4 MB and more. A partition of more than 32 MB keeps one core
# busy after the others have finished.


LEAST_BYTES: Final = 4 << 20
MOST_BYTES: Final = 32 << 20
FLOOR_BYTES: Final = 64 << 10
"""Least bytes of a partition with minPartitions: the distance at which group ends are known."""


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """Rule for the size of one query's partitions.

    Attributes:
        cores: the cores that share a batch.
        least: the minimum number of partitions; None for no minimum.
    """

    cores: int = 1
    least: int | None = None

    def bytes(self, total: int) -> int:
        """Return the size in bytes of the partitions of a batch of `total` bytes."""
        size = min(max(-(-total // self.cores), LEAST_BYTES), MOST_BYTES)
        if total > size:
            size = -(-total // -(-total // size))  # equal sizes, so that no partition gets a small rest
        if self.least is not None:
            size = min(size, -(-total // self.least))
        return max(size, FLOOR_BYTES)


INLINE_PARTITION_BYTES: Final = 100 << 20
"""Most inline bytes of a task. Spark's limit, spark.rpc.message.maxSize, is 128 MB unless set, and includes more than
these bytes.
"""
INLINE_BATCH_BYTES: Final = 512 << 20
"""Most inline bytes of a batch. The driver's JVM, with 1 GB unless set, holds all tasks of a batch in memory."""
UNBOUNDED: Final = 1 << 62
RANGES_A_PARTITION: Final = 256
"""Most ranges of a partition. A task opens a file for each range, and a log may have thousands of files of a few KB if
they were closed by age.
"""
_log = logging.getLogger(__name__)


@lru_cache(maxsize=64)
def file_head(path: Path) -> FileHead:
    """Return the cached head of a relay file. A head never changes, and an open log uses each file number once."""
    return read_file_head(path)


def server_of(log: RelayLog, location: RelayLocation) -> int | None:
    """Return the id of the server whose binlog the groups before `location` came from; None before the first group."""
    if not location.offset:
        return None
    return file_head(relay_path(log.directory, location.file)).server_id


class Origin(NamedTuple):
    """Origin of a place of the log.

    It is the server, and the identity that the transaction before the place has on every server.
    """

    server_id: int | None = None
    uid: str | None = None
    last: Fingerprint | None = None


def origin_of(log: RelayLog, location: RelayLocation) -> Origin:
    """Return the origin of the group that ends at `location`; an empty one before the first group."""
    if not location.offset:
        return Origin()
    uid = source_of(log.directory, location.file)
    return Origin(server_of(log, location), uid, fingerprint_at(log, location))


class SchemaStretch(NamedTuple):
    """Adjacent groups [begin, end) of the log with one definition of each selected table."""

    begin: RelayLocation
    end: RelayLocation
    catalog: CatalogChanges = ()


class _Span(NamedTuple):
    """Range of the log before it becomes partitions.

    Attributes:
        part: whether the range is one group, of which not all rows are needed.
    """

    range: RelayRange
    catalog: CatalogChanges
    part: bool

    @property
    def places(self) -> tuple[RelayLocation, RelayLocation]:
        number = relay_number(Path(self.range.path))
        return RelayLocation(number, self.range.start), RelayLocation(number, self.range.end)


class RangeCutter:
    """Rules by which the ranges of one query become partitions.

    Args:
        tables: the selected tables.
        inline: whether tasks get the bytes, because they cannot open files.
    """

    def __init__(
        self,
        tables: SelectedTables,
        *,
        inline: bool,
        skip_unprepared: bool = False,
        size: PartitionSize = PartitionSize(),
    ) -> None:
        self._tables = tables
        self.inline = inline
        self._skip_unprepared = skip_unprepared
        self._size = size
        self._groups: LargeGroups | None = None

    def partitions(
        self,
        log: RelayLog,
        first: OffsetPlace,
        last: OffsetPlace,
        start: SourceOffset,
        end: SourceOffset,
        *,
        stretches: Sequence[SchemaStretch] = (),
        delivered: DeliveredKeys | None = None,
    ) -> list[ChangePartition]:
        """Cut the range from `first` to `last` into partitions, in stream order.

        Args:
            log: the relay log.
            first: the place of `start`.
            last: the place where the last transaction of the batch ends.
            start: the offset after which the batch begins; it may be inside a transaction.
            end: the offset at which the batch ends.
            stretches: adjacent stretches from `first` to `last`, if table definitions change in between.
            delivered: the rows that count while tables are being read; None for all.

        Raises:
            DataLossError: the range commits an XA transaction that was prepared before the query's first offset.
        """
        bounds = None
        if not (first.exact and last.exact):
            bounds = GroupBounds(
                lower=None if first.exact else _sequence_numbers(start.position),
                upper=None if last.exact else _sequence_numbers(end.through),
            )
        rows = row_bounds(start.part, end.part)
        size = self._size.bytes(bytes_between(log, first.scan_from, last.reached))
        undivided = (SchemaStretch(first.scan_from, last.reached),)
        spans = [
            _Span(found, stretch.catalog, part)
            for stretch in stretches or undivided
            for begin, stop, part in _with_parts_apart(log, stretch, (first, last), (start.part, end.part))
            for found in log.ranges(begin, stop, size)
        ]
        needs, _ = follow(log, [span.places for span in spans], first.prepared)
        self._judge(needs, start.position)
        lenient = self._skip_unprepared or bounds is not None  # groups outside the bounds may lack groups before them
        ranges = (
            replace(
                part,
                file=file_head(Path(span.range.path)).primary.file,
                bounds=bounds,
                lenient=lenient,
                rows=rows,
                delivered=delivered,
            )
            for span, need in zip(spans, needs, strict=True)
            for part in self._ranges(span, need, size, rows)
        )
        return list(_packed(ranges, size))

    def of_tables(self, parts: Sequence[MappedRange]) -> list[ChangePartition]:
        """Put snapshot rows into partitions, in their order. There may be as many parts as small tables."""
        return list(_packed(parts, self._size.bytes(sum(part.size for part in parts))))

    def on_board(self, partitions: list[ChangePartition]) -> list[ChangePartition]:
        """Return the partitions of a batch as tasks get them: with inline bytes if tasks cannot open files.

        Raises:
            ConfigError: there are more bytes than Spark can send.
        """
        if not self.inline:
            return partitions
        _check_inline(partitions)
        return [partition.inline() for partition in partitions]

    def _ranges(self, span: _Span, needs: RangeNeeds, size: int, rows: tuple[RowBounds, ...]) -> Iterator[MappedRange]:
        """Cut a range of the log, and large transactions in parts. A large XA transaction replaces its XA COMMIT."""
        begin = span.range.start
        carried = tuple(_by_path(group.bytes) for group in needs.carried if not _is_large(group.bytes, size))
        for commit in needs.commits:
            if _is_large(commit.prepared.bytes, size):
                yield from self._plain(span, (begin, commit.bytes.start), carried, size, rows)
                for part in self.large.parts(commit.prepared.bytes, size, rows, commit=commit.bytes):
                    yield replace(part, catalog=span.catalog)
                begin = commit.bytes.end
        yield from self._plain(span, (begin, span.range.end), carried, size, rows)

    def _plain(
        self,
        span: _Span,
        place: tuple[int, int],
        carried: tuple[MappedRange, ...],
        size: int,
        rows: tuple[RowBounds, ...],
    ) -> Iterator[MappedRange]:
        """Cut a part of a span, bytes [begin, end) of its file, that commits no large prepared transaction."""
        begin, end = place
        if begin == end:
            return
        part = span.range._replace(start=begin, end=end)
        if _is_large(part, size) or (span.part and not carried):
            for piece in self.large.parts(part, size, rows):
                yield replace(piece, catalog=span.catalog)
        else:
            yield MappedRange(*part, carried=carried, catalog=span.catalog)

    @property
    def large(self) -> LargeGroups:
        """The transactions that are cut inside. The index of one of them serves several batches."""
        if self._groups is None:
            from streaming_source.ranges.large_groups import LargeGroups

            self._groups = LargeGroups(self._tables)
        return self._groups

    def _judge(self, needs: list[RangeNeeds], start: GtidPosition) -> None:
        """Refuse or log the XA COMMITs after `start` whose rows were prepared before the beginning of the log."""
        for group in (group for need in needs for group in need.unknown):
            last = start.get(group.gtid.domain_id)
            if last is not None and last.seq_no >= group.gtid.seq_no:
                continue
            error = unprepared_error(group)
            if not self._skip_unprepared:
                raise DataLossError(
                    error.message, hint=f"{error.hint} skipUnpreparedXa=true continues without its rows."
                )
            _log.warning("%s They are left out.", error.message)


def row_bounds(skip: GroupPart | None, take: GroupPart | None) -> tuple[RowBounds, ...]:
    """Return the needed rows of the transactions in which a batch begins or ends, which may be one transaction."""
    if skip is not None and take is not None and skip.gtid == take.gtid:
        return (_row_bounds(skip.gtid, skip.rows, take.rows),)
    begun = () if skip is None else (_row_bounds(skip.gtid, skip.rows, None),)
    return begun if take is None else (*begun, _row_bounds(take.gtid, 0, take.rows))


def _row_bounds(gtid: Gtid, first: int, end: int | None) -> RowBounds:
    return RowBounds(gtid.domain_id, gtid.seq_no, first, end)


def _sequence_numbers(position: GtidPosition) -> tuple[tuple[int, int], ...]:
    return tuple((gtid.domain_id, gtid.seq_no) for gtid in position)


def _with_parts_apart(
    log: RelayLog,
    stretch: SchemaStretch,
    places: tuple[OffsetPlace, OffsetPlace],
    parts: tuple[GroupPart | None, GroupPart | None],
) -> list[tuple[RelayLocation, RelayLocation, bool]]:
    """Divide a stretch so that the transactions in which the batch begins or ends are separate, and marked (True)."""
    (first, last), (begun, ended) = places, parts
    begins, ends = set(), set()
    if begun is not None and first.exact and stretch.begin == first.scan_from:
        begins.add(first.scan_from)
        ends.add(log.cut(first.scan_from, last.reached, 1).location)
    if ended is not None and last.exact and stretch.end == last.reached:
        begins.add(log.last_group(last.reached))
        ends.add(last.reached)
    borders = sorted({stretch.begin, *begins, *ends, stretch.end})
    return [(begin, end, begin in begins and end in ends) for begin, end in pairwise(borders)]


def _is_large(part: RelayRange, size: int) -> bool:
    """Return True if the range can only be one group, because a range of several groups would have been cut earlier."""
    return part.end - part.start > size + size // 4 + INDEX_EVERY_BYTES


def _by_path(part: RelayRange) -> MappedRange:
    return MappedRange(*part)


def _packed(ranges: Iterable[MappedRange], size: int) -> Iterator[ChangePartition]:
    """Join adjacent ranges, up to about `size` bytes a partition."""
    pack: list[MappedRange] = []
    total = 0
    for part in ranges:
        if pack and (total + part.size > size + size // 4 or len(pack) == RANGES_A_PARTITION):
            yield ChangePartition(tuple(pack))
            pack, total = [], 0
        pack.append(part)
        total += part.size
    if pack:
        yield ChangePartition(tuple(pack))


def _check_inline(partitions: list[ChangePartition]) -> None:
    sizes = [partition.size for partition in partitions]
    for what, size, limit in (
        ("a transaction that cannot be divided,", max(sizes, default=0), INLINE_PARTITION_BYTES),
        ("a batch", sum(sizes), INLINE_BATCH_BYTES),
    ):
        if size > limit:
            raise ConfigError(
                f"{what} of {size >> 20} MB cannot travel inside Spark's tasks (transport=inline): "
                f"the limit is {limit >> 20} MB.",
                hint="Put relayDir on storage that driver and executors share, and set transport=path. "
                "splitLargeTransactions=true divides a large transaction into several batches.",
            )


# `GroupCut.end` takes the ordinal at which the batch begins, and returns the ordinal before which it ends. It uses the
# places where the transaction can be cut, as `replica.rows.decode.row_index` finds them. The batch has at least
# one row change and at most `max_rows` selected ones. It exceeds `max_bytes` only if two adjacent places are further
# apart.


class GroupCut:
    """The places where one transaction can be cut, with its begin and end, and the counts before each place."""

    def __init__(self, index: RowIndex) -> None:
        self._rows = _between(0, index.rows, index.total_rows)
        self._selected = _between(0, index.selected, index.total_selected)
        self._bytes = _between(0, index.offsets, index.size)

    def end(self, lower: int, *, max_bytes: int, max_rows: int | None) -> int | None:
        """Return the end of a batch that begins at the row change with ordinal `lower`; None if the rest fits."""
        begin = self._place(lower)
        total = int(self._selected[-1])
        done = self.selected_before(lower)
        if total == done:
            return None
        fitting = int(np.searchsorted(self._bytes, self._bytes[begin] + max_bytes, side="right")) - 1
        upper = int(self._rows[max(fitting, begin + 1)])
        if max_rows is not None and total - done > max_rows:
            place = int(np.searchsorted(self._selected, done + max_rows, side="right")) - 1
            over = int(self._rows[place])
            if self._pure(place):
                over += done + max_rows - int(self._selected[place])
            upper = min(upper, max(over, lower + max_rows))  # max_rows rows have at most max_rows selected ones
        return upper if self.selected_before(upper) < total else None

    def selected_before(self, ordinal: int) -> int:
        """Count selected row changes with a lower ordinal. If rows of other tables lie between, count those before the
        last place.
        """
        if ordinal >= self._rows[-1]:
            return int(self._selected[-1])
        place = self._place(ordinal)
        return int(self._selected[place]) + (ordinal - int(self._rows[place]) if self._pure(place) else 0)

    def share_before(self, ordinal: int) -> float:
        """Return the fraction of the transaction's bytes before a row change, from 0 to 1, as if all rows had the same
        size.
        """
        return float(np.interp(ordinal, self._rows, self._bytes) / self._bytes[-1])

    def _pure(self, place: int) -> bool:
        """Return True if all rows between a place and the next one are selected."""
        return bool(self._rows[place + 1] - self._rows[place] == self._selected[place + 1] - self._selected[place])

    def _place(self, ordinal: int) -> int:
        """Return the last place before the row change, except for the end."""
        found = int(np.searchsorted(self._rows, ordinal, side="right")) - 1
        return min(found, len(self._rows) - 2)


def _between(first: int, values: Ints, last: int) -> Ints:
    return np.concatenate(([first], values, [last])).astype(np.int64)
