"""The positions up to which the engine of a replica has surely committed, where tables are read from one.

In: @@global.gtid_binlog_pos of the replica, polled about once a second, and the relay log of its primary. Out: L, a
group end of that relay log, or in words why there is none yet. File names and offsets of the replica mean nothing in
the relay log, so the place is the position that its binlog had `age_s` ago: a commit takes less from the binlog to the
engine. L goes back before the XA COMMITs that the engine of the replica is not done with.

Refused, with a reason: positions that the relay log does not reach back to, and logs in which sequence numbers go back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.groups.gtid_search import GtidSearch
from replica.snapshot.watermark.primary import MAX_PAIRS, TEN_SECONDS
from replica.snapshot.watermark.xa import ROWLESS, XaCommits

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.snapshot.watermark.primary import ServerStatus


class ReplicaWatermark:
    """The judge of one replica's positions against the relay log of its primary. Not thread-safe.

    `reason` says why there is no L yet. Times in arguments are those of any one clock that never goes back.
    """

    def __init__(self, log: RelayLog, age_s: float = TEN_SECONDS) -> None:
        self._log = log
        self._age_s = age_s
        self.reason = "the replica has not been asked yet"
        self._forget()

    def _forget(self) -> None:
        self._groups = RelayGroups(self._log.directory)
        self._positions: deque[tuple[float, GtidPosition]] = deque()
        self._xa, self._ahead = XaCommits(self._log), XaCommits(self._log)
        self._old: tuple[float, GtidPosition] | None = None
        self._proven: RelayHead | None = None
        self._looked: RelayLocation | None = None

    def look(self, status: ServerStatus, before: RelayHead | None, now_s: float) -> None:
        """Take what a poll read at `now_s`; `before` is where the relay log ended then.

        Raises:
            RelayError: the relay log cannot be read.
            ProtocolError: its bytes are damaged.
        """
        if before is None:
            self.reason = "the relay log has not begun"
            return
        if self._looked is not None and before.location < self._looked:
            self._forget()  # the log was made again
        self._looked = before.location
        self._ahead.look(before.location, ())
        last = self._positions[-1] if self._positions else self._old
        if len(self._positions) < MAX_PAIRS and (last is None or last[1] != status.position):
            self._positions.append((now_s, status.position))
        while self._positions and self._positions[0][0] <= now_s - self._age_s:
            self._old = self._positions.popleft()
        if self._old is None:
            self.reason = f"the replica's position {self._positions[0][1]} is not {self._age_s:g} s old yet"
            return
        found = self._reached(self._old[1], before)
        if found is not None and (self._proven is None or found.location > self._proven.location):
            self._proven = found
        if self._proven is not None:
            # Of these its own binlog has the XA COMMITs, so XA RECOVER tells which hang; of later ones it does not.
            self._xa.look(self._proven.location, status.prepared)

    def lower(self, _now_s: float) -> RelayHead | None:
        """Return L; None while there is none."""
        if self._proven is None:
            return None
        lower, readable = self._xa.lower(self._proven), self._ahead.readable
        if lower is None or (readable is not None and lower.location < readable):
            self.reason = ROWLESS
            return None
        return lower

    def keep_from(self) -> RelayLocation | None:
        """Return the first place that `lower` may name: any, before there is one."""
        if self._proven is None:
            return self._log.oldest() if self._looked is not None else None
        first = self._xa.first
        return self._proven.location if first is None else min(first, self._proven.location)

    def _reached(self, position: GtidPosition, head: RelayHead) -> RelayHead | None:
        """Return the last place up to which the replica has all groups of the relay log."""
        if self._log.order().highest:
            self.reason = "sequence numbers of the relay log go back: a replica's position names no place of it"
            return None
        first = self._log.first_position()
        location = head.location
        for last in head.position:
            begun = None if first is None else first.get(last.domain_id)
            there = position.get(last.domain_id)
            if begun == last or (there is not None and there.seq_no >= last.seq_no):
                continue  # it has all that the log holds of this domain
            search = None if there is None else GtidSearch(there)
            group = None if search is None else self._log.steadily(lambda search=search: self._groups.find(search))  # type: ignore[misc]
            if group is not None:
                location = min(location, group.after.location)
            elif there == begun:
                location = min(location, self._log.oldest())
            else:
                self.reason = f"the replica is at {there or 'nothing'}, which the relay log does not reach back to"
                return None
        return self._log.at(location)
