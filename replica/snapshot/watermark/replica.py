"""Low watermark of a replica, for snapshots that read tables from a replica.

`ReplicaWatermark` takes the replica's @@global.gtid_binlog_pos about once a second, and the relay log of its primary.
The watermark is the location of the position that the replica's binlog had `age_s` ago. A commit takes less time from
the binlog to the engine. File names and offsets of the replica mean nothing in the relay log. The watermark is never
after an XA COMMIT that the replica's engine has not finished.

A position before the start of the relay log gives no watermark. The same holds for a relay log whose sequence numbers
go back. `reason` then says why.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from replica.relay_log.groups.groups import GtidSearch, RelayGroups
from replica.snapshot.watermark.primary import MAX_PAIRS, ROWLESS, TEN_SECONDS, XaCommits

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.snapshot.watermark.primary import ServerStatus


class ReplicaWatermark:
    """Low watermark of one replica, from its positions and the relay log of its primary. Not thread-safe.

    `reason` says why there is no watermark yet. All times are of one monotonic clock, in seconds.
    """

    def __init__(self, log: RelayLog, age_s: float = TEN_SECONDS) -> None:
        self._log = log
        self._age_s = age_s
        self.reason = "the replica has not been polled yet"
        self._forget()

    def _forget(self) -> None:
        self._groups = RelayGroups(self._log.directory)
        self._positions: deque[tuple[float, GtidPosition]] = deque()
        self._xa, self._log_xa = XaCommits(self._log), XaCommits(self._log)
        self._old: tuple[float, GtidPosition] | None = None
        self._proven: RelayHead | None = None
        self._log_end: RelayLocation | None = None

    def update(self, status: ServerStatus, before: RelayHead | None, now_s: float) -> None:
        """Handle the answers of a poll at `now_s`; `before` is the relay log's end before the poll.

        Raises:
            RelayError: The relay log cannot be read.
            ProtocolError: The relay log is damaged.
        """
        if before is None:
            self.reason = "the relay log has not begun"
            return
        if self._log_end is not None and before.location < self._log_end:
            self._forget()  # the relay log was created again
        self._log_end = before.location
        self._log_xa.update(before.location, ())
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
            # XA RECOVER shows which of the XA COMMITs in the replica's own binlog hang, and nothing about later ones.
            self._xa.update(self._proven.location, status.prepared)

    def watermark(self, _now_s: float) -> RelayHead | None:
        """Return the low watermark; None if there is none yet."""
        if self._proven is None:
            return None
        found, readable = self._xa.watermark(self._proven), self._log_xa.readable
        if found is None or (readable is not None and found.location < readable):
            self.reason = ROWLESS
            return None
        return found

    def keep_from(self) -> RelayLocation | None:
        """Return the first location that `watermark` may return; before the first watermark, the start of the log."""
        if self._proven is None:
            return self._log.oldest() if self._log_end is not None else None
        first = self._xa.first
        return self._proven.location if first is None else min(first, self._proven.location)

    def _reached(self, position: GtidPosition, head: RelayHead) -> RelayHead | None:
        """Return the last location up to which the replica has all groups of the relay log."""
        if self._log.order().highest:
            self.reason = "sequence numbers of the relay log go back: a replica's position is ambiguous in it"
            return None
        first = self._log.first_position()
        location = head.location
        for last in head.position:
            begun = None if first is None else first.get(last.domain_id)
            reached = position.get(last.domain_id)
            if begun == last or (reached is not None and reached.seq_no >= last.seq_no):
                continue  # the replica has all groups of this domain in the log
            search = None if reached is None else GtidSearch(reached)
            group = None if search is None else self._log.steadily(lambda search=search: self._groups.find(search))  # type: ignore[misc]
            if group is not None:
                location = min(location, group.after.location)
            elif reached == begun:
                location = min(location, self._log.oldest())
            else:
                self.reason = (
                    f"the replica is at {reached or 'no position'}, which is before the start of the relay log"
                )
                return None
        return self._log.at(location)
