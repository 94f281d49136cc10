"""Lag of a replica behind its primary, computed from the stream, its heartbeats, and the monitor's answers.

In: samples in order of time. Out: lag in seconds, bytes and event groups, and how long our place in the primary's
binlog is safe. The primary's position at this very moment is unknown, so each figure needs a definition:

* seconds: 0 after a heartbeat, because the primary had nothing to send. Also 0 if the monitor asked after the newest
  group arrived, and the answer shows no missing group. Otherwise the age of the newest group on its arrival, by the
  primary's clock. While nothing arrives, or the answer shows missing groups, the lag grows with the time since no group
  was missing. Binlog timestamps have whole seconds, so up to one second of the age is not counted.
* groups: number of missing sequence numbers, summed over the domains. An upper bound, because sequence numbers may
  jump.
* bytes: distance between our place and the primary's, at its last answer. None if the file sizes are not visible to us.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from replica.protocol.gtid import Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from replica.daemon.status.record import StatusRecord
    from replica.handshake.primary.progress import ListedBinlog, PrimaryAnswer
    from replica.live.progress import Progress
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.location import RelayHead

Purge = Literal["never", "unknown", "by age", "by size", "gone"]

TIMESTAMP_STEP_S = 1.0
"""Resolution in seconds of the timestamps in event headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All facts known at `now` (our clock).

    `head_server_id` is the server in whose binlog the head's place is. `head_uid` distinguishes it from servers with
    the same id; None if it was not stored.
    """

    now: float
    head: RelayHead
    head_server_id: int
    answer: PrimaryAnswer | None
    binlogs: tuple[ListedBinlog, ...] | None
    progress: Progress
    quiet_s: float
    """Seconds of silence, without even a heartbeat, after which the stream proves nothing."""
    head_uid: str | None = None


@dataclass(frozen=True, slots=True)
class LagFigures:
    """Figures of the lag. None: not known, or not known yet."""

    seconds: float | None
    bytes: int | None
    groups: int | None
    safe_s: float | None
    """Minimum seconds for which the primary keeps what we need next. None if `purge` is "never" or "unknown"."""
    purge: Purge


class PrimaryLag:
    """Lag over time, with the facts that earlier samples have proved. Not thread-safe."""

    def __init__(self) -> None:
        self._complete_at = 0.0
        self._age_s: float | None = None
        self._heartbeats = 0
        self._head_at = (0, 0)
        self._arrived_at = 0.0
        self._sampled_at = 0.0

    def sample(self, known: Sample) -> LagFigures:
        if known.answer is not None and not _of_our_primary(known, known.answer):
            known = replace(known, answer=None, binlogs=None)
        answer, now = known.answer, known.now
        covered = answer is not None and _covers(known.head.position, answer.position)
        if answer is not None and covered:
            self._complete_at = max(self._complete_at, min(answer.asked_at, now))
        self._follow_stream(known)
        if answer is not None and covered and answer.asked_at >= self._arrived_at:
            self._age_s = 0.0  # the primary then had nothing newer than the groups here
        seconds = self._seconds(known, covered=covered)
        self._sampled_at = now
        safe_s, purge = self._safe_s(known, covered=covered)
        groups = None if answer is None else groups_between(known.head.position, answer.position)
        return LagFigures(seconds, _bytes(known, covered=covered), groups, safe_s, purge)

    def _follow_stream(self, known: Sample) -> None:
        progress, head = known.progress, known.head
        self._complete_at = min(self._complete_at, known.now)  # the clock may have been put back
        self._arrived_at = min(self._arrived_at, known.now)
        if head.location != self._head_at:
            self._head_at = head.location
            self._arrived_at = progress.last_receipt_at or known.now
            self._age_s = max(0.0, self._arrived_at + _offset_s(known) - head.timestamp - TIMESTAMP_STEP_S)
        if progress.heartbeats != self._heartbeats:
            self._heartbeats = progress.heartbeats
            # The heartbeat arrived after the last sample, so the primary had nothing to send at that sample's time.
            self._complete_at = max(self._complete_at, min(self._sampled_at, known.now))
            if progress.primary is not None and progress.primary >= head.primary:
                self._age_s = 0.0  # the heartbeat arrived after the newest group

    def _seconds(self, known: Sample, *, covered: bool) -> float | None:
        answer, progress, now = known.answer, known.progress, known.now
        since = max(self._complete_at, self._committed_at(known) if known.head.timestamp else 0.0)
        if not since:
            return None
        grown = max(0.0, now - since)
        flowing = progress.state == "streaming" and now - progress.last_receipt_at <= known.quiet_s
        if covered and answer is not None and now - answer.asked_at <= known.quiet_s and not flowing:
            return 0.0
        if not flowing or (answer is not None and not covered):
            return grown
        return grown if self._age_s is None else min(grown, self._age_s)

    def _committed_at(self, known: Sample) -> float:
        """Return the commit time of the newest group by our clock.

        The result is never later than the group's arrival, because a session may set its clock (SET timestamp).
        """
        return min(known.head.timestamp - _offset_s(known), self._arrived_at)

    def _safe_s(self, known: Sample, *, covered: bool) -> tuple[float | None, Purge]:
        answer = known.answer
        if answer is None:
            return None, "unknown"
        if not covered and _same_server(known) and answer.file_kept is False:
            return 0.0, "gone"
        # The primary purges a file by the time of its last write, which is not earlier than our last group. If we have
        # everything, the next group was not written yet when the primary was asked.
        last = min(known.now, answer.asked_at)
        if not covered and known.head.timestamp:
            last = max(self._complete_at, self._committed_at(known))
        if answer.max_total_bytes is not None and not covered:
            return None, "unknown"  # purging by size depends on future writes
        if answer.expiry_s is not None:
            return max(0.0, last + answer.expiry_s - known.now), "by age"
        return (None, "never") if answer.max_total_bytes is None else (None, "by size")


def groups_between(ours: GtidPosition, theirs: GtidPosition) -> int:
    """Return how many sequence numbers of `theirs` are missing in `ours`, summed over all domains."""
    total = 0
    for gtid in theirs:
        have = ours.get(gtid.domain_id)
        total += max(0, gtid.seq_no - (have.seq_no if have else 0))
    return total


def bytes_between(ours: BinlogPosition, theirs: BinlogPosition, binlogs: tuple[ListedBinlog, ...] | None) -> int | None:
    """Return the number of bytes of one server's binlog from `ours` to the later place `theirs`.

    None means that the size of a file in between is unknown. `binlogs` are the server's files with their sizes.
    """
    if ours.file == theirs.file:
        return max(0, theirs.position - ours.position)
    sizes = {one.name: one.size for one in binlogs or ()}
    names = list(sizes)
    if ours.file not in sizes or theirs.file not in sizes or names.index(ours.file) > names.index(theirs.file):
        return None
    between = names[names.index(ours.file) : names.index(theirs.file)]
    return max(0, sum(sizes[name] for name in between) - ours.position + theirs.position)


def _bytes(known: Sample, *, covered: bool) -> int | None:
    if covered:
        return 0
    if known.answer is None or known.answer.place is None or not _same_server(known):
        return None
    return bytes_between(known.head.primary, known.answer.place, known.binlogs)


def _covers(ours: GtidPosition, theirs: GtidPosition) -> bool:
    return theirs.compare(ours) in (Order.EQUAL, Order.BEFORE)


def _of_our_primary(known: Sample, answer: PrimaryAnswer) -> bool:
    """Return True if an answer is from the server we stream from or streamed from last.

    An answer of another server proves nothing.
    """
    return answer.server_id in (known.head_server_id, known.progress.primary_server_id)


def _same_server(known: Sample) -> bool:
    if known.answer is None or not known.head.primary.file:
        return False
    if known.head_uid is not None and known.answer.uid:
        return known.answer.uid == known.head_uid
    return known.answer.server_id == known.head_server_id


def _offset_s(known: Sample) -> float:
    return known.answer.clock_offset_s if known.answer else 0.0


# `CatchingUp` logs a line every ten seconds while the replica lags far, and one line when it has caught up. A daemon
# that never lags far logs only the latter, once.


EVERY_S: Final = 1.0
SAID_EVERY_S: Final = 10.0
"""Seconds between two lines.

A long first start then shows its progress, and logs less than 10 000 lines a day.
"""
FAR_S: Final = 30.0
"""Lag in seconds above which a daemon catches up. A smaller lag occurs on every busy primary."""
NEAR_S: Final = 2.0


class CatchingUp:
    """Watcher of one daemon. `turn` checks it once."""

    def __init__(self, record: Callable[[], StatusRecord], log: FilteringBoundLogger) -> None:
        self._record = record
        self._log = log
        self._ever = False
        self._before: StatusRecord | None = None
        """The record of the last line, while the daemon lags far."""

    def turn(self) -> None:
        """Check the record, and log a line if one is due."""
        now = self._record()
        lag_s = now.behind.seconds
        if lag_s is None or now.state != "streaming":
            return
        if lag_s > FAR_S:
            if self._before is not None and 0 <= now.written_at - self._before.written_at < SAID_EVERY_S:
                return
            speed = self._speed(now)
            left = now.behind.bytes
            self._log.info(
                "catching up",
                behind_s=round(lag_s),
                behind_bytes=left,
                bytes_per_s=speed,
                left_s=round(left / speed) if left is not None and speed else None,
                position=now.position.gtid,
            )
            self._before = now
        elif lag_s <= NEAR_S and (self._before is not None or not self._ever):
            self._log.info("caught up", position=now.position.gtid)
            self._before, self._ever = None, True

    def _speed(self, now: StatusRecord) -> int | None:
        before = self._before
        if before is None or now.written_at <= before.written_at:
            return None
        return round((now.stream.received_bytes - before.stream.received_bytes) / (now.written_at - before.written_at))
