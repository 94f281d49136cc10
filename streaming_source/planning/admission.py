"""End of a micro-batch: all limits of a query together, and the minimum of rows for which a batch waits.

`Admission.end` returns the end of a batch, at the end of a transaction and within all limits. It returns None while
there are fewer row changes than `minRowsPerTrigger`. A batch has at least one transaction, however large. With
`splitLargeTransactions`, a transaction that alone exceeds a limit is split into pieces, and each piece is a batch. If
the server has replaced a transaction that was read in part, the next piece is an error.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import DataLossError
from replica.native.compiling.ahead import COMPILING
from replica.relay_log.groups.order import out_of_order
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_log.walks.xa import follow
from streaming_source.offsets.offset import GroupPart
from streaming_source.ranges.counted_groups import CountedGroups
from streaming_source.ranges.cutting import INLINE_BATCH_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog, RelayRange
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.ranges.cutting import GroupCut, RangeCutter
    from streaming_source.ranges.places import OffsetPlace
    from streaming_source.selection.resolver import SelectedTables

# The progress of each trigger reports the bytes of the relay log that a query has not planned yet. Both ends move: the
# query's place and the head of the log. A complete file is measured once, at most FILES_A_CALL files in a call. Files
# that are not measured yet count with the average size. A removed file counts as 0 bytes.

FILES_A_CALL: Final = 32
"""Most files that one call measures. Each costs some 7 us, and the progress of each trigger waits for the call. The
limit is a fifteenth of the time for planning.
"""


class Backlog:
    """Bytes between two moving places of the log.

    The object takes some 100 bytes of memory for each file between them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[int, int] = {}  # sizes of complete files, by number, ascending without gaps
        self._bytes = 0
        self._end = RelayLocation(0, 0)

    def bytes(self, start: RelayLocation, end: RelayLocation) -> int:
        first = next(iter(self._sizes), start.file)
        if end < self._end or start.file < first:  # the log was started again
            self._sizes, self._bytes, first = {}, 0, start.file
        self._end = end
        for number in range(first, start.file):
            self._bytes -= self._sizes.pop(number, 0)
        unknown = range(next(reversed(self._sizes), start.file - 1) + 1, end.file)
        for number in unknown[:FILES_A_CALL]:
            self._sizes[number] = self._size(number)
            self._bytes += self._sizes[number]
        estimated = len(unknown[FILES_A_CALL:]) * self._bytes // max(1, len(self._sizes))
        return max(0, self._bytes + estimated - start.offset + end.offset)

    def _size(self, number: int) -> int:
        try:
            return relay_path(self._directory, number).stat().st_size
        except FileNotFoundError:
            return 0


UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Options of admission. Rows and transactions are those of the selected tables. Bytes are bytes of the binlog."""

    max_bytes: int = UNBOUNDED
    max_rows: int | None = None
    max_transactions: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 0.0
    split: bool = False

    def shared(self) -> BatchLimits:
        """Return the limits for changes in a batch that also has snapshot rows. Such a batch waits for no minimum."""
        rows = None if self.max_rows is None else _half(self.max_rows)
        return replace(self, max_rows=rows, max_bytes=_half(self.max_bytes), min_rows=None)

    def beside_changes(self) -> BatchLimits:
        """Return the limits for snapshot rows in a batch that also has changes.

        With a limit of one row, no snapshot row fits.
        """
        rows = None if self.max_rows is None else self.max_rows - _half(self.max_rows)
        return replace(self, max_rows=rows, max_bytes=max(1, self.max_bytes - _half(self.max_bytes)))


def _half(limit: int) -> int:
    """Return the share of a limit that changes get, at least one."""
    return max(1, limit // 2)


def batch_limits(options: SourceOptions, *, inline: bool) -> BatchLimits:
    """Return the limits of a query.

    Args:
        options: the options of the query.
        inline: whether the bytes of the query travel inside Spark's tasks, whose size is limited.
    """
    return BatchLimits(
        max_bytes=min(options.max_bytes_per_trigger, INLINE_BATCH_BYTES) if inline else options.max_bytes_per_trigger,
        max_rows=options.max_rows_per_trigger,
        max_transactions=options.max_transactions_per_trigger,
        min_rows=options.min_rows_per_trigger,
        max_delay_s=options.max_trigger_delay_s,
        split=options.split_large_transactions,
    )


class BatchEnd(NamedTuple):
    """End of a batch.

    Attributes:
        head: the end of the last whole group in the batch.
        part: the part of the next group that is in the batch; None if none is.
        inside: the place inside the next group at which `part` ends.
    """

    head: RelayHead
    part: GroupPart | None = None
    inside: RelayLocation | None = None

    @property
    def reached(self) -> RelayHead:
        """The place that the batch reaches, for measuring the lag."""
        return self.head if self.inside is None else self.head._replace(location=self.inside)


class Admission:
    """Admission of one query. Only one thread calls it.

    Args:
        cutter: finds the places at which a large transaction can be cut.
    """

    def __init__(self, tables: SelectedTables, limits: BatchLimits, cutter: RangeCutter) -> None:
        self._cutter = cutter
        self._limits = limits
        self._counted = CountedGroups(tables)
        self._last_batch_s: float | None = None
        self._waits_at: RelayLocation | None = None

    @property
    def fills(self) -> int:
        """Number of bytes that fill a batch; 0 if the limits count only rows or transactions."""
        limits = self._limits
        return 0 if limits.max_rows or limits.max_transactions else COMPILING.most_bytes(limits.max_bytes)

    # -- waiting for rows ------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether a batch has to wait for a minimum of rows now.

        The batch does not wait if `maxTriggerDelay` has passed since the last batch. The first batch after a restart
        does not wait, because the age of its rows is unknown. A query that restarts often would never plan a batch
        otherwise.
        """
        return self._limits.min_rows is not None and self.waits_for_s > 0

    @property
    def waits_for_s(self) -> float:
        """Longest time in seconds that a batch may wait for its minimum."""
        if self._last_batch_s is None:
            return 0.0
        return max(0.0, self._last_batch_s + self._limits.max_delay_s - time.monotonic())

    @property
    def waiting(self) -> dict[str, int]:
        """Number of waiting rows and their longest wait, for the progress of a query with a minimum."""
        if self._limits.min_rows is None:
            return {}
        return {"rowsWaiting": self._counted.rows, "waitsAtMostSeconds": round(self.waits_for_s)}

    def examined_to(self, place: OffsetPlace) -> RelayLocation:
        """Return the place up to which the batch that begins at `place` is known to lack its minimum of rows."""
        return self._counted.end if self._waits_at == place.reached else place.reached

    def planned(self) -> None:
        """Record that a batch, perhaps an empty one, was planned now."""
        self._last_batch_s = time.monotonic()

    def taken(self, log: RelayLog, place: OffsetPlace) -> None:
        """Record that the batch ends at `place`, so that earlier rows do not wait any more."""
        if self._limits.min_rows is not None:
            self._counted.begin_at(log, place)

    # -- the end of a batch ----------------------------------------------------------------------------------------

    def end(
        self, log: RelayLog, start: SourceOffset, place: OffsetPlace, goal: RelayLocation, *, wait: bool
    ) -> BatchEnd | None:
        """Return the end of the batch that begins at `start`, not after `goal`.

        Return None if there is no group between `start` and `goal`. With `wait`, also return None for fewer rows than
        the minimum, unless a limit is reached.

        Args:
            log: the relay log.
            start: the offset at which the batch begins.
            place: the place of `start` in the log.
            goal: the place that the batch may reach.
            wait: whether the batch waits for a minimum of rows.

        Raises:
            DataLossError: groups after `place` were purged, or the server has replaced a transaction that was read in
                part.
            ProtocolError: the bytes are damaged.
        """
        self._waits_at = None
        if place.reached >= goal:
            return None
        if start.part is not None and place.exact:
            first = log.cut(place.reached, goal, 1)
            if _is_next(start.part, log.at(place.reached), first):
                return (self._part(log, place, first, start.part) if self._limits.split else None) or BatchEnd(first)
        cut = log.cut(place.reached, goal, COMPILING.most_bytes(self._limits.max_bytes))
        reaches_goal = cut.location >= goal
        divided = log.cut(place.reached, goal, 1) if self._limits.split and place.exact else None
        # A transaction that exceeds the limit of bytes is alone in `cut`. It is admitted, whole or in parts, however
        # many rows it has.
        large = cut.location.offset - log.last_group(cut.location).offset > self._limits.max_bytes
        admitted = cut if large else self._within_rows(log, place, cut, divided, wait=wait and reaches_goal)
        if admitted is None:
            self._waits_at = place.reached
            return None
        if divided is not None and start.part is None and admitted.location == divided.location:
            return self._part(log, place, divided, None) or BatchEnd(admitted)
        return BatchEnd(admitted)

    def _within_rows(
        self, log: RelayLog, place: OffsetPlace, cut: RelayHead, divided: RelayHead | None, *, wait: bool
    ) -> RelayHead | None:
        """Return `cut`, or an earlier end that the limits of rows and transactions allow; None to wait for more rows.

        `divided` is the end of the first transaction, if this transaction alone exceeds the limits and has to be a
        batch of its own.
        """
        limits, counted = self._limits, self._counted
        if not (limits.max_rows or limits.max_transactions or wait):
            return cut
        enough = limits.min_rows if wait and limits.max_transactions is None else None
        counted.begin_at(log, place)
        counted.extend(cut.location, rows=_beyond(limits.max_rows) or enough, groups=_beyond(limits.max_transactions))
        excess = counted.excess(limits.max_rows, limits.max_transactions)
        if excess is not None:
            # A too large transaction is either admitted whole, with the transactions before it, or it is split, and
            # then it is alone in its batches.
            goes_whole = excess.is_first and (divided is None or excess.end == divided.location)
            limit = excess.end if goes_whole else excess.start
        elif wait and counted.rows < (limits.min_rows or 0):
            return None
        else:
            limit = counted.end if limits.max_rows or limits.max_transactions else cut.location
        return cut if limit >= cut.location else log.cut(place.reached, limit, UNBOUNDED)

    # -- inside a transaction --------------------------------------------------------------------------------------

    def _part(self, log: RelayLog, place: OffsetPlace, first: RelayHead, taken: GroupPart | None) -> BatchEnd | None:
        """Return the next piece of the group that ends at `first`; None if the group's rest fits into one batch."""
        (group,) = log.ranges(place.reached, first.location, UNBOUNDED)
        if taken is None and group.end - group.start <= self._limits.max_bytes and not self._over_by_rows(first):
            return None
        found = self._group_cut(log, place, first, group)
        if found is None:
            return None
        lower = taken.rows if taken else 0
        upper = found.end(lower, max_bytes=self._limits.max_bytes, max_rows=self._limits.max_rows)
        if upper is None:
            return None
        before = log.at(place.reached)
        (gtid,) = (gtid for gtid in first.position.gtids if gtid not in before.position.gtids)
        left = (group.end - group.start) * (1 - found.share_before(upper))
        inside = RelayLocation(first.location.file, first.location.offset - round(left))
        return BatchEnd(before, GroupPart(gtid, upper), inside)

    def _over_by_rows(self, first: RelayHead) -> bool:
        """Return True if a count found that the group that ends at `first` alone exceeds the limit of rows."""
        if self._limits.max_rows is None:
            return False
        excess = self._counted.excess(self._limits.max_rows, None)
        return excess is not None and excess.is_first and excess.end == first.location

    def _group_cut(self, log: RelayLog, place: OffsetPlace, first: RelayHead, group: RelayRange) -> GroupCut | None:
        """Return where a group, or the prepared group that it commits, can be cut; None if it cannot be cut."""
        from streaming_source.ranges.cutting import GroupCut  # imports numpy

        (needs,), _ = follow(log, [(place.reached, first.location)], place.prepared)
        index = self._cutter.large.index(needs.carried[0].bytes if needs.carried else group)
        return None if index is None or not index.total_selected else GroupCut(index)


def _beyond(limit: int | None) -> int | None:
    """Return the lowest count that exceeds a limit."""
    return None if limit is None else limit + 1


def _is_next(part: GroupPart, before: RelayHead, first: RelayHead) -> bool:
    """Return True if the group between the two places is the group that was read in part.

    The result is False if groups of other domains come first on this server. It is also False if the log begins after
    the group, which was already reported as data loss.

    Raises:
        DataLossError: the domain of the group continues with another transaction.
    """
    found, last = (place.position.get(part.gtid.domain_id) for place in (first, before))
    if last is not None and last.seq_no >= part.gtid.seq_no:
        return False
    if found not in (part.gtid, last):
        raise DataLossError(
            f"{part.rows} row changes of the transaction {part.gtid} have been read, but the server now has {found} "
            "in its place.",
            hint="The transaction was lost in a failover. Delete its rows from the sink (transaction.gtid identifies "
            f"them), and start with a new checkpoint and startingPosition={before.position or 'earliest'}.",
        )
    return found == part.gtid


# `OrderLimit.reach` returns the last place before the first transaction that is out of order, so that all rows before
# it are read. The log may be written by this query's replica, an earlier query, or a daemon with other options. A batch
# that would begin with the transaction that is out of order is an error.


class OrderLimit:
    """Limit of one query. Only one thread calls it.

    Args:
        strict: the option gtidStrictMode.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._in_order: tuple[RelayLog, RelayLocation, RelayLocation] | None = None
        """Places of the log between which no sequence number goes back."""

    def reach(self, log: RelayLog, start: RelayLocation, goal: RelayLocation) -> RelayLocation:
        """Return `goal`, or the place before the first transaction after `start` whose number goes back.

        Raises:
            OutOfOrderGtidError: the transaction that is out of order comes right after `start`.
        """
        if not self._strict or goal <= start:
            return goal
        begin = start
        if self._in_order is not None and self._in_order[0] is log and self._in_order[1] <= start:
            begin = max(start, self._in_order[2])
        found = log.first_out_of_order(begin, goal) if begin < goal else None
        if found is None:
            self._in_order = log, start, goal
            return goal
        group, last = found
        before = group.before.location
        if before <= start or log.is_empty(start, before):
            raise out_of_order(group.gtid, last, f"at {group.before.primary}")
        return before

    def check(self, log: RelayLog, start: RelayLocation, end: RelayLocation) -> None:
        """Raise an OutOfOrderGtidError if the range has a transaction whose number goes back."""
        reached = self.reach(log, start, end)
        if reached < end:
            self.reach(log, reached, end)
