"""How far a micro-batch goes, and into which partitions its range is cut.

In: places of the relay log and the limits of the query. Out: the end of the next batch, at a group end; partitions of
some 8 MB, by path or with their bytes on board. A batch holds at least one transaction, however large: transactions are
never split over batches. Refused: bytes on board beyond what Spark's own messages can carry.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError, DataLossError
from replica.relay.file_head import FileHead, read_file_head
from replica.relay.location import RelayLocation, relay_number, relay_path
from replica.relay.xa import RangeNeeds, follow
from replica.rows.xa import unprepared_error
from streaming_source.partition import ChangePartition, GroupBounds, RelayRange

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay.location import RelayHead
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

_log = logging.getLogger(__name__)


@lru_cache(maxsize=64)
def file_head(path: Path) -> FileHead:
    """The head of a relay file: it never changes, and no number is used for two files while a log is open."""
    return read_file_head(path)


def server_of(log: RelayLog, location: RelayLocation) -> int | None:
    """Id of the server whose binlog the groups before `location` were copied from; None before the first."""
    if not location.offset:
        return None
    return file_head(relay_path(log.directory, location.file)).server_id


class RangeCutter:
    """Limits of one query. `max_rows` counts row changes of the selected `tables`; both limits hold together."""

    def __init__(
        self,
        tables: SelectedTables,
        *,
        max_bytes: int,
        max_rows: int | None,
        inline: bool,
        skip_unprepared: bool = False,
    ) -> None:
        self._tables = tables
        self._max_bytes = min(max_bytes, INLINE_BATCH_BYTES) if inline else max_bytes
        self._max_rows = max_rows
        self._inline = inline
        self._skip_unprepared = skip_unprepared

    def cut(self, log: RelayLog, start: Place, end: RelayLocation, *, bounded: bool) -> RelayHead | None:
        """Where the batch that begins at `start` ends, `end` at the latest; None if there is nothing between."""
        begin = start.reached
        if begin >= end:
            return None
        if not bounded:
            return log.cut(begin, end, UNBOUNDED)
        cut = log.cut(begin, end, self._max_bytes)
        return cut if self._max_rows is None else self._cut_by_rows(log, start, cut, self._max_rows)

    def _cut_by_rows(self, log: RelayLog, start: Place, cut: RelayHead, max_rows: int) -> RelayHead:
        """The last group end with at most `max_rows` rows up to it, but at least one group."""
        from replica.rows.decode import count_rows  # brings pyarrow: only queries that limit rows pay for it here

        rows = before = 0  # rows, and bytes of groups, in the ranges before this one
        _, prepared = follow(log, [(start.scan_from, start.reached)], start.prepared)
        for part in log.ranges(start.reached, cut.location, PARTITION_BYTES):
            needs, prepared = follow(log, [_places(part)], prepared)
            data = RelayRange(part.path, part.start, part.end, part.checksum, carried=_by_path(needs[0]))
            groups, counts = count_rows(
                data.data(), self._tables, checksum=part.checksum, carried=data.carried_groups()
            )
            totals = rows + counts.cumsum()
            fitting = int((totals <= max_rows).sum())
            if fitting < len(totals):
                taken = before + (int(groups.end[fitting - 1]) if fitting else 0)
                return log.cut(start.reached, cut.location, max(taken, 1))
            rows, before = int(totals[-1]), before + part.end - part.start
        return cut

    def partitions(
        self, log: RelayLog, first: Place, last: Place, start: SourceOffset, end: SourceOffset
    ) -> list[ChangePartition]:
        """The range from `first` to `last` in parallel pieces, in stream order.

        Raises:
            ConfigError: bytes on board beyond what Spark can send.
            DataLossError: the range commits an XA transaction that was prepared before the query's first offset.

        """
        bounds = None
        if not (first.exact and last.exact):
            bounds = GroupBounds(
                lower=None if first.exact else _sequence_numbers(start.position),
                upper=None if last.exact else _sequence_numbers(end.position),
            )
        ranges = log.ranges(first.scan_from, last.reached, PARTITION_BYTES)
        needs, _ = follow(log, [_places(part) for part in ranges], first.prepared)
        self._judge(needs, start.position)
        lenient = self._skip_unprepared or bounds is not None  # groups that are not wanted may lack what is before them
        by_path = [
            RelayRange(
                *(r.path, r.start, r.end, r.checksum),
                file=file_head(Path(r.path)).primary.file,
                bounds=bounds,
                carried=_by_path(need),
                lenient=lenient,
            )
            for r, need in zip(ranges, needs, strict=True)
        ]
        if not self._inline:
            return list(by_path)
        _check_inline(by_path)
        return [r.inline() for r in by_path]

    def _judge(self, needs: list[RangeNeeds], start: GtidPosition) -> None:
        """Refuse or report the XA COMMITs after `start` whose rows were prepared before all that the log holds."""
        for group in (group for need in needs for group in need.unknown):
            last = start.get(group.gtid.domain_id)
            if last is not None and last.seq_no >= group.gtid.seq_no:
                continue
            error = unprepared_error(group)
            if not self._skip_unprepared:
                raise DataLossError(error.message, hint=f"{error.hint} skipUnpreparedXa=true goes on without its rows.")
            _log.warning("%s They are left out.", error.message)


def _sequence_numbers(position: GtidPosition) -> tuple[tuple[int, int], ...]:
    return tuple((gtid.domain_id, gtid.seq_no) for gtid in position)


def _places(part: LogRange) -> tuple[RelayLocation, RelayLocation]:
    number = relay_number(Path(part.path))
    return RelayLocation(number, part.start), RelayLocation(number, part.end)


def _by_path(needs: RangeNeeds) -> tuple[RelayRange, ...]:
    parts = (group.bytes for group in needs.carried)
    return tuple(RelayRange(part.path, part.start, part.end, part.checksum) for part in parts)


def _check_inline(ranges: list[RelayRange]) -> None:
    sizes = [r.end - r.start + sum(c.end - c.start for c in r.carried) for r in ranges]
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
