"""The places of the binlog up to which the engine has surely committed, judged from what the server's status says.

In: the pair Binlog_snapshot_file and Binlog_snapshot_position, polled about once a second, and the relay log. Out: L, a
group end of the relay log that every snapshot opened from now on sees, or in words why there is none yet.

The pair alone is no proof (all measured on 10.5, 10.11 and 11.8): a rotation moves it past commits that still wait, it
may be torn then, any other session's SHOW STATUS overwrites it, and an XA COMMIT moves it before the engine commits. So
it counts only where it is exactly the end of a group, not the beginning of a file, not lower than before, and once it
is `age_s` old; L then goes back before the XA COMMITs that the engine is not done with. Where no thread of the server
can be in a commit, the end of the log is L at once, whatever the pair says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.protocol.gtid import Order
from replica.relay_log.groups.groups import RelayGroups
from replica.snapshot.watermark.xa import ROWLESS, XaCommits

if TYPE_CHECKING:
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.groups.groups import Around
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog

TEN_SECONDS: Final = 10.0
"""The age of a pair that counts: torn and overwritten pairs, and commits between binlog and engine, are past by
then."""
MAX_PAIRS: Final = 1024
"""Pairs that wait to be old enough: one is accepted a second, so there are as many as `age_s` has seconds."""
MAX_AHEAD: Final = 64
"""Pairs that wait for the relay log, which a busy server is always ahead of; where it is far behind, every other one is
enough."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The answers to one poll, read in this order.

    `place` is the pair, None where the server has none. `waiting`: sessions whose commit waits for a semi-synchronous
    replica. `position` is @@global.gtid_binlog_pos, `time_s` the server's clock, in seconds since 1970. `prepared`: the
    XA transactions that XA RECOVER lists. `settled`: no thread could be in a commit; False where this was not asked.
    """

    place: BinlogPosition | None
    waiting: int
    position: GtidPosition
    time_s: float
    prepared: frozenset[XaId] = frozenset()
    settled: bool = False


class PrimaryWatermark:
    """The judge of one server's pairs against the relay log that is copied from that server. Not thread-safe.

    `reason` says why there is no L yet. Times in arguments are those of any one clock that never goes back.
    """

    def __init__(self, log: RelayLog, age_s: float = TEN_SECONDS) -> None:
        self._log = log
        self._age_s = age_s
        self.reason = "the server has not been asked yet"
        self._forget()

    def _forget(self) -> None:
        self._groups = RelayGroups(self._log.directory)
        self._pairs: deque[tuple[float, RelayHead]] = deque()
        self._ahead: list[tuple[float, BinlogPosition, GtidPosition]] = []
        self._proven: RelayHead | None = None
        self._still: tuple[ServerStatus, float] | None = None
        self._xa = XaCommits(self._log)
        self._looked: RelayLocation | None = None

    def look(self, status: ServerStatus, before: RelayHead | None, now_s: float) -> None:
        """Take what a poll read.

        Args:
            status: the answers.
            before: where the relay log ended before the server was asked: what came since may not be committed.
            now_s: the time.

        Raises:
            RelayError: the relay log cannot be read.
            ProtocolError: its bytes are damaged.
        """
        head = self._log.head()
        if head is None or before is None:
            self.reason = "the relay log has not begun"
            return
        if self._looked is not None and head.location < self._looked:
            self._forget()  # the log was made again
        self._looked = head.location
        self._xa.look(before.location, status.prepared)
        if status.settled or self._is_idle(before, status, now_s):
            self._prove(before)
        self._accept(status, head, now_s)

    def lower(self, now_s: float) -> RelayHead | None:
        """Return L as of `now_s`; None while there is none."""
        judged = self._xa.judged
        while self._pairs and self._pairs[0][0] <= now_s - self._age_s:
            if judged is None or self._pairs[0][1].location > judged:
                break  # an XA COMMIT before it may be on its way
            self._prove(self._pairs.popleft()[1])
        found = self._proven
        if found is None:
            if self._pairs:
                age = max(now_s - self._pairs[0][0], 0.0)
                self.reason = f"the place {self._pairs[0][1].primary} is {age:.0f} s old of {self._age_s:g}"
            return None
        lower = self._xa.lower(found)
        if lower is None:
            self.reason = ROWLESS
        return lower

    def keep_from(self) -> RelayLocation | None:
        """Return the first place that `lower` may name; None before the first look."""
        places = [end.location for _, end in self._pairs]
        places += [self._proven.location] if self._proven is not None else []
        places += [place for place in (self._xa.first, self._xa.judged) if place is not None]
        return min(places, default=None)

    # -- pairs -----------------------------------------------------------------------------------------------------

    def _prove(self, end: RelayHead) -> None:
        """Keep the furthest place that is surely committed."""
        if self._proven is None or end.location > self._proven.location:
            self._proven = end

    def _accept(self, status: ServerStatus, head: RelayHead, now_s: float) -> None:
        """Judge the place, and those of before that the relay log has reached by now, which is up to `head`."""
        if status.place is None:
            self.reason = "the server shows no place of its binlog (Binlog_snapshot_file)"
        else:
            self._ahead.append((now_s, status.place, status.position))
        judged, self._ahead = self._ahead, []
        for seen_s, place, position in judged:
            around = self._log.steadily(lambda place=place: self._groups.around(place))  # type: ignore[misc]
            if around is None or around.before.location > head.location:
                self.reason = f"no transaction of the relay log ends at the server's place {place} yet"
                self._ahead.append((seen_s, place, position))
                continue
            end = self._end_at(place, position, around)
            last = self._pairs[-1][1] if self._pairs else self._proven
            if end is not None and len(self._pairs) < MAX_PAIRS and (last is None or end.location > last.location):
                self._pairs.append((seen_s, end))
        if len(self._ahead) > MAX_AHEAD:
            del self._ahead[::2]

    def _end_at(self, place: BinlogPosition, position: GtidPosition, around: Around) -> RelayHead | None:
        """Return the group end that is exactly at a place of the primary; None, with a reason, where there is none.

        `position`: that of the binlog when the place was seen. A torn pair names a place that is reached later.
        """
        if around.before.position.compare(position) not in (Order.EQUAL, Order.BEFORE):
            self.reason = f"the server's place {place} was ahead of its binlog: its two parts were of different times"
        elif around.before.primary != place:
            self.reason = f"the server's place {place} is not the end of a transaction: one may wait in its commit"
        elif self._begins_file(around.before):
            self.reason = f"the server's place {place} is the beginning of a file: a commit before it may still wait"
        else:
            return around.before
        return None

    def _begins_file(self, end: RelayHead) -> bool:
        """Tell whether no group of the primary's file is known to end there; a relay file may begin inside of one."""
        files, number = self._groups.files, end.location.file
        if end.location.offset > files.head(number).data_start:
            return False
        return number - 1 not in files.numbers() or files.head(number - 1).identity != files.head(number).identity

    # -- a server at rest --------------------------------------------------------------------------------------------

    def _is_idle(self, head: RelayHead, status: ServerStatus, now_s: float) -> bool:
        """Tell whether all that the relay log holds is committed: it is the end of the binlog, and nothing waits there.

        At the beginning of a file the pair proves nothing, and a long statement's commit has the time at which that
        began: so there it has to have stood still for as long as a pair has to be old, unless there is no group at all.
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
