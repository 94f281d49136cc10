"""The answer to "which GTID position is that": what stands for a time, a place of the binlog, or a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.protocol.gtid import BinlogPosition

if TYPE_CHECKING:
    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.relay_log.groups.groups import LogGroup


@dataclass(frozen=True, slots=True)
class NextGroup:
    """The event group behind a position; `time_s` is its commit time, `place` where its first event is, if known."""

    gtid: Gtid
    time_s: int | None = None
    place: BinlogPosition | None = None

    @classmethod
    def of(cls, group: LogGroup) -> NextGroup:
        """Describe a group of a relay log, which may lack annotations: its place is known where it follows the group
        before at once.
        """
        place = BinlogPosition(group.after.primary.file, group.begins)
        return cls(group.gtid, group.after.timestamp, place if place == group.before.primary else None)

    @classmethod
    def of_whole(cls, group: LogGroup) -> NextGroup:
        """Describe a group in the same way where every event was received."""
        place = BinlogPosition(group.after.primary.file, group.begins)
        return cls(group.gtid, group.after.timestamp, place)


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The answer. `position`: the groups before; `next`: the one that a reader starting there meets first, None at the
    end.

    `resume` lies before it where XA transactions were prepared: a reader that begins there has their rows too.
    `inside`: the place that was asked for lies inside of `next`.
    """

    position: GtidPosition
    next: NextGroup | None
    resume: GtidPosition | None = None
    inside: bool = False
