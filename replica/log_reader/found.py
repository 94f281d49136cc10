"""Answer to a search for a GTID position, by time, binlog place or transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.protocol.gtid import BinlogPosition

if TYPE_CHECKING:
    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.relay_log.groups.groups import LogGroup


@dataclass(frozen=True, slots=True)
class NextGroup:
    """Event group after a position. `time_s`: commit time; `place`: start of its first event; None if unknown."""

    gtid: Gtid
    time_s: int | None = None
    place: BinlogPosition | None = None

    @classmethod
    def of(cls, group: LogGroup) -> NextGroup:
        """Describe a group of a relay log, which may lack annotations.

        The place is known only if the group directly follows the previous one.
        """
        place = BinlogPosition(group.after.primary.file, group.begins)
        return cls(group.gtid, group.after.timestamp, place if place == group.before.primary else None)

    @classmethod
    def of_whole(cls, group: LogGroup) -> NextGroup:
        """Describe a group of which every event was received."""
        place = BinlogPosition(group.after.primary.file, group.begins)
        return cls(group.gtid, group.after.timestamp, place)


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """Answer to a search.

    Attributes:
        position: Position after all earlier groups.
        next: First group after the position; None at the end of the log.
        resume: Earlier position from which a reader also gets the rows of prepared XA transactions; None if there are
            none.
        inside: Whether the searched place is inside `next`.
    """

    position: GtidPosition
    next: NextGroup | None
    resume: GtidPosition | None = None
    inside: bool = False
