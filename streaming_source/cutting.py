"""How far a micro-batch goes, and into which partitions its range is cut.

In: places of the relay log and the limits of the query. Out: the end of the next batch, at a group end; partitions of
some 8 MB, by path or with their bytes on board. A batch holds at least one transaction, however large: transactions are
never split over batches. Refused: bytes on board beyond what Spark's own messages can carry.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError
from replica.relay.file_head import FileHead, read_file_head
from streaming_source.partition import ChangePartition, GroupBounds, InlineRange, RelayRange

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay.location import RelayHead, RelayLocation
    from replica.relay.log import RelayLog
    from replica.relay.log import RelayRange as LogRange
    from streaming_source.offset import SourceOffset
    from streaming_source.places import Place
    from streaming_source.resolver import SelectedTables

PARTITION_BYTES: Final = 8 << 20
"""Some 50 ms of decoding and half a second of Spark's work, where a task costs Spark 30 ms."""
INLINE_PARTITION_BYTES: Final = 100 << 20
"""The largest task Spark can send, spark.rpc.message.maxSize, is 128 MB unless set; a task is more than its bytes."""
INLINE_BATCH_BYTES: Final = 512 << 20
"""The driver's JVM holds all tasks of a batch in memory; it has 1 GB unless told otherwise."""
UNBOUNDED: Final = 1 << 62


@lru_cache(maxsize=64)
def file_head(path: Path) -> FileHead:
    """The head of a relay file: it never changes, and no number is used for two files while a log is open."""
    return read_file_head(path)


class RangeCutter:
    """Limits of one query. `max_rows` counts row changes of the selected `tables`; both limits hold together."""

    def __init__(self, tables: SelectedTables, *, max_bytes: int, max_rows: int | None, inline: bool) -> None:
        self._tables = tables
        self._max_bytes = min(max_bytes, INLINE_BATCH_BYTES) if inline else max_bytes
        self._max_rows = max_rows
        self._inline = inline

    def cut(self, log: RelayLog, start: RelayLocation, end: RelayLocation, *, bounded: bool) -> RelayHead | None:
        """Where the batch that begins at `start` ends, `end` at the latest; None if there is nothing between."""
        if start >= end:
            return None
        if not bounded:
            return log.cut(start, end, UNBOUNDED)
        cut = log.cut(start, end, self._max_bytes)
        return cut if self._max_rows is None else self._cut_by_rows(log, start, cut, self._max_rows)

    def _cut_by_rows(self, log: RelayLog, start: RelayLocation, cut: RelayHead, max_rows: int) -> RelayHead:
        """The last group end with at most `max_rows` rows up to it, but at least one group."""
        from replica.rows.decode import count_rows  # brings numba: only queries that limit rows pay for it here

        rows = before = 0  # rows, and bytes of groups, in the ranges before this one
        for part in log.ranges(start, cut.location, PARTITION_BYTES):
            data = RelayRange(part.path, part.start, part.end, part.checksum).data()
            groups, counts = count_rows(data, self._tables, checksum=part.checksum)
            totals = rows + counts.cumsum()
            fitting = int((totals <= max_rows).sum())
            if fitting < len(totals):
                taken = before + (int(groups.end[fitting - 1]) if fitting else 0)
                return log.cut(start, cut.location, max(taken, 1))
            rows, before = int(totals[-1]), before + part.end - part.start
        return cut

    def partitions(
        self, log: RelayLog, first: Place, last: Place, start: SourceOffset, end: SourceOffset
    ) -> list[ChangePartition]:
        """The range from `first` to `last` in parallel pieces, in stream order."""
        bounds = None
        if not (first.exact and last.exact):
            bounds = GroupBounds(
                lower=None if first.exact else _sequence_numbers(start.position),
                upper=None if last.exact else _sequence_numbers(end.position),
            )
        ranges = log.ranges(first.scan_from, last.reached, PARTITION_BYTES)
        by_path = [
            RelayRange(r.path, r.start, r.end, r.checksum, file_head(Path(r.path)).primary.file, bounds) for r in ranges
        ]
        if not self._inline:
            return list(by_path)
        _check_inline(ranges)
        return [InlineRange(bytes(r.data()), r.checksum, r.file, r.bounds) for r in by_path]


def _sequence_numbers(position: GtidPosition) -> tuple[tuple[int, int], ...]:
    return tuple((gtid.domain_id, gtid.seq_no) for gtid in position)


def _check_inline(ranges: list[LogRange]) -> None:
    sizes = [r.end - r.start for r in ranges]
    for what, size, limit in (
        ("a transaction", max(sizes, default=0), INLINE_PARTITION_BYTES),
        ("a batch", sum(sizes), INLINE_BATCH_BYTES),
    ):
        if size > limit:
            raise ConfigError(
                f"{what} of {size >> 20} MB cannot travel inside Spark's tasks (transport=inline): "
                f"the limit is {limit >> 20} MB.",
                hint="Put relayDir on storage that driver and executors share, and set transport=path.",
            )
