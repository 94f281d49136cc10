"""Low watermark of a primary: the location up to which every snapshot opened from now on sees all groups.

`PrimaryWatermark` takes the status pair Binlog_snapshot_file and Binlog_snapshot_position about once a second, and the
relay log. It returns a group end of the relay log, or the reason why there is none yet.

The pair alone is no proof (measured on 10.5, 10.11 and 11.8). A rotation moves the pair past commits that still wait,
and may tear the pair (file and position of different times). SHOW STATUS in any other session overwrites the pair. An
XA COMMIT moves the pair before the engine commits. Therefore, a pair counts only after `age_s` seconds, and only if the
pair is exactly a group end. A pair at the start of a file, or before an earlier pair, does not count. The watermark is
never after an XA COMMIT that the engine has not finished. If no thread of the server can be in a commit, the watermark
is the end of the log at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.protocol.gtid import Order
from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.xa import check_open, xa_groups_in
from replica.rows.scan.xa import XaAction

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.groups.groups import Around
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog

# Other transactions overtake an XA COMMIT between the binlog and the engine, however long it takes. `XaCommits`
# therefore compares the relay log with the output of XA RECOVER. XA RECOVER lists a transaction of any session until
# the engine has committed it (10.5, 10.11 and 11.8).


ROWLESS: Final = "the end of XA transactions that were prepared before the relay log begins"
"""Reason for a missing low watermark although a location is proven to be committed."""


class XaCommits:
    """XA COMMITs of one relay log. Not thread-safe.

    Attributes:
        judged: Location up to which the log is processed.
        readable: A window may only begin here or later. An XA COMMIT before this location refers to a transaction
            prepared before the log begins, whose rows are not available. None if there is no such XA COMMIT.
    """

    def __init__(self, log: RelayLog) -> None:
        self._log = log
        self.judged: RelayLocation | None = None
        self.readable: RelayLocation | None = None
        self._prepared: frozenset[XaId] = frozenset()
        self._waiting: dict[XaId, RelayLocation] = {}

    def update(self, end: RelayLocation, listed: Collection[XaId]) -> None:
        """Read the XA groups up to `end`, which the log must have reached before the server was asked for `listed`.

        Raises:
            DataLossError, RelayError: The log cannot be read.
            ProtocolError: The log is damaged.
        """
        if self.judged is None or end > self.judged:
            self._log.steadily(lambda: self._scan(end, listed))
        self._waiting = {xid: place for xid, place in self._waiting.items() if xid in listed}

    @property
    def first(self) -> RelayLocation | None:
        """Start of the first XA COMMIT that snapshots may not see; None if there is none."""
        return min(self._waiting.values(), default=None)

    def watermark(self, proven: RelayHead) -> RelayHead | None:
        """Return the low watermark, before which everything is committed, XA COMMITs included.

        Everything up to `proven` is committed, except XA COMMITs. Return None if no window may begin at the watermark.
        """
        first = self.first
        found = proven if first is None or first >= proven.location else self._log.at(first)
        return None if self.readable is not None and found.location < self.readable else found

    def _scan(self, end: RelayLocation, listed: Collection[XaId]) -> None:
        oldest = self._log.oldest()
        start = oldest if self.judged is None else max(oldest, self.judged)
        prepared, waiting, readable = set(self._prepared), dict(self._waiting), self.readable
        for number, part in self._log.xa_stretches(start, end):
            for group in xa_groups_in(part):
                if group.action is XaAction.PREPARE:
                    prepared.add(group.xid)
                    waiting.pop(group.xid, None)  # the id is free again, so the engine has the earlier commit
                    continue
                if group.action is XaAction.COMMIT and group.xid not in prepared:
                    readable = RelayLocation(number, part.start + group.end)
                if group.action is XaAction.COMMIT and group.xid in listed:
                    waiting.setdefault(group.xid, RelayLocation(number, part.start + group.start))
                prepared.discard(group.xid)
            check_open(prepared)
        self._prepared, self._waiting, self.readable = frozenset(prepared), waiting, readable
        self.judged = end


TEN_SECONDS: Final = 10.0
"""Age in seconds after which a pair counts. Torn and overwritten pairs, and commits between binlog and engine, are over
by then.
"""
MAX_PAIRS: Final = 1024
"""Maximum number of pairs that wait to reach `age_s`. One pair a second is accepted."""
MAX_AHEAD: Final = 64
"""Maximum number of pairs that wait for the relay log, because a busy server is always ahead of it. Every second pair
is dropped if the log lags far behind.
"""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """Answers of one poll, in the order of the queries.

    Attributes:
        place: Status pair; None if the server has none.
        waiting: Sessions whose commit waits for a semi-synchronous replica.
        position: @@global.gtid_binlog_pos.
        time_s: The server's clock, in seconds since 1970.
        prepared: XA transactions in the output of XA RECOVER.
        settled: Whether no thread could be in a commit; False if this was not queried.
    """

    place: BinlogPosition | None
    waiting: int
    position: GtidPosition
    time_s: float
    prepared: frozenset[XaId] = frozenset()
    settled: bool = False


class PrimaryWatermark:
    """Low watermark of one server, from its status pairs and the relay log copied from it. Not thread-safe.

    `reason` says why there is no watermark yet. All times are of one monotonic clock, in seconds.
    """

    def __init__(self, log: RelayLog, age_s: float = TEN_SECONDS) -> None:
        self._log = log
        self._age_s = age_s
        self.reason = "the server has not been polled yet"
        self._forget()

    def _forget(self) -> None:
        self._groups = RelayGroups(self._log.directory)
        self._pairs: deque[tuple[float, RelayHead]] = deque()
        self._unreached: list[tuple[float, BinlogPosition, GtidPosition]] = []
        self._proven: RelayHead | None = None
        self._still: tuple[ServerStatus, float] | None = None
        self._xa = XaCommits(self._log)
        self._log_end: RelayLocation | None = None

    def update(self, status: ServerStatus, before: RelayHead | None, now_s: float) -> None:
        """Handle the answers of a poll.

        Args:
            status: Answers.
            before: End of the relay log before the poll. Later groups may not be committed.
            now_s: Time of the poll.

        Raises:
            RelayError: The relay log cannot be read.
            ProtocolError: The relay log is damaged.
        """
        head = self._log.head()
        if head is None or before is None:
            self.reason = "the relay log has not begun"
            return
        if self._log_end is not None and head.location < self._log_end:
            self._forget()  # the log was created again
        self._log_end = head.location
        self._xa.update(before.location, status.prepared)
        if status.settled or self._is_idle(before, status, now_s):
            self._prove(before)
        self._accept(status, head, now_s)

    def watermark(self, now_s: float) -> RelayHead | None:
        """Return the low watermark at `now_s`; None if there is none."""
        judged = self._xa.judged
        while self._pairs and self._pairs[0][0] <= now_s - self._age_s:
            if judged is None or self._pairs[0][1].location > judged:
                break  # an XA COMMIT before the pair may still be on its way to the engine
            self._prove(self._pairs.popleft()[1])
        found = self._proven
        if found is None:
            if self._pairs:
                age = max(now_s - self._pairs[0][0], 0.0)
                self.reason = (
                    f"the place {self._pairs[0][1].primary} is {age:.0f} s old and has to be {self._age_s:g} s old"
                )
            return None
        watermark = self._xa.watermark(found)
        if watermark is None:
            self.reason = ROWLESS
        return watermark

    def keep_from(self) -> RelayLocation | None:
        """Return the first location that `watermark` may return; None before the first poll."""
        places = [end.location for _, end in self._pairs]
        places += [self._proven.location] if self._proven is not None else []
        places += [place for place in (self._xa.first, self._xa.judged) if place is not None]
        return min(places, default=None)

    # -- pairs -----------------------------------------------------------------------------------------------------

    def _prove(self, end: RelayHead) -> None:
        """Keep the furthest location that is surely committed."""
        if self._proven is None or end.location > self._proven.location:
            self._proven = end

    def _accept(self, status: ServerStatus, head: RelayHead, now_s: float) -> None:
        """Judge the pair, and earlier pairs that the relay log has reached, up to `head`."""
        if status.place is None:
            self.reason = "the server shows no place of its binlog (Binlog_snapshot_file)"
        else:
            self._unreached.append((now_s, status.place, status.position))
        judged, self._unreached = self._unreached, []
        for seen_s, place, position in judged:
            around = self._log.steadily(lambda place=place: self._groups.around(place))  # type: ignore[misc]
            if around is None or around.before.location > head.location:
                self.reason = f"no transaction of the relay log ends at the server's place {place} yet"
                self._unreached.append((seen_s, place, position))
                continue
            end = self._end_at(place, position, around)
            last = self._pairs[-1][1] if self._pairs else self._proven
            if end is not None and len(self._pairs) < MAX_PAIRS and (last is None or end.location > last.location):
                self._pairs.append((seen_s, end))
        if len(self._unreached) > MAX_AHEAD:
            del self._unreached[::2]

    def _end_at(self, place: BinlogPosition, position: GtidPosition, around: Around) -> RelayHead | None:
        """Return the group end that is exactly at a primary's binlog place; None, with a reason, if there is none.

        `position`: the binlog's position when the pair was read. A torn pair names a place that the binlog reaches
        later.
        """
        if around.before.position.compare(position) not in (Order.EQUAL, Order.BEFORE):
            self.reason = (
                f"the server's place {place} was ahead of its binlog: its file and offset were read at different times"
            )
        elif around.before.primary != place:
            self.reason = f"the server's place {place} is not the end of a transaction: a commit may be in progress"
        elif self._begins_file(around.before):
            self.reason = f"the server's place {place} is the beginning of a file: an earlier commit may be in progress"
        else:
            return around.before
        return None

    def _begins_file(self, end: RelayHead) -> bool:
        """Return True if no group of the primary's file is known to end there; a relay file may begin inside a
        primary's file.
        """
        files, number = self._groups.files, end.location.file
        if end.location.offset > files.head(number).data_start:
            return False
        return number - 1 not in files.numbers() or files.head(number - 1).identity != files.head(number).identity

    # -- idle server -------------------------------------------------------------------------------------------------

    def _is_idle(self, head: RelayHead, status: ServerStatus, now_s: float) -> bool:
        """Return True if all groups of the relay log are committed: it ends at the end of the binlog, and no commit
        waits there.

        At the start of a file, the pair proves nothing. The age of the last group proves nothing either, because a
        group has the time at which its statement began. The pair must then be unchanged for `age_s`, unless the binlog
        has no group at all.
        """
        place = status.place
        if place is None or status.waiting or status.position.compare(head.position) not in (Order.EQUAL, Order.BEFORE):
            self._still = None
            return False
        if not status.position:
            return True
        if place == head.primary:
            self._still = None
            return status.time_s - head.timestamp > self._age_s
        if place.file == head.primary.file and place < head.primary:
            self._still = None
            return False
        before = self._still
        if before is None or (before[0].place, before[0].position) != (place, status.position):
            self._still = before = status, now_s
        return now_s - before[1] >= self._age_s
