"""The relay log as the reading of tables sees it: what a query's feed, or a test's replica, offers.

In: GTID positions of servers. Out: places of the relay log that are at or behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from replica.errors import AmbiguousPositionError
from replica.protocol.gtid import covers

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog


class LogView(Protocol):
    """A relay log that is being written. Every call raises the fatal error of what writes it."""

    @property
    def log(self) -> RelayLog: ...

    def head(self) -> RelayHead: ...

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:
        """Wait until the log has all groups up to a position; return False if it has not by then."""
        ...


def place_behind(view: LogView, position: GtidPosition) -> RelayLocation | None:
    """Find a place of the log behind which no group of `position` lies; None: the log has not got there yet.

    The exact place where there is one; else the log's end, which is behind it: a window may be too long.
    """
    head = view.head()
    if not covers(head.position, position):
        return None
    try:
        return view.log.locate(position) or head.location
    except AmbiguousPositionError:
        return head.location
