"""Relay log as the snapshot sees it: the interface that a query's feed or a test's replica implements.

`location_after` maps a server's GTID position to a relay log location at or after it.
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
    """Relay log that is being written. Every call raises the fatal error of the writer."""

    @property
    def log(self) -> RelayLog: ...

    def head(self) -> RelayHead: ...

    def wait_for(self, position: GtidPosition, timeout_s: float) -> bool:
        """Wait until the log contains all groups up to a position; return False after `timeout_s` seconds."""
        ...


def location_after(view: LogView, position: GtidPosition) -> RelayLocation | None:
    """Return a location of the log after all groups of `position`; None if the log has not reached the position.

    The location is exact if the log knows it. Otherwise it is the log's end, which may only lengthen a window.
    """
    head = view.head()
    if not covers(head.position, position):
        return None
    try:
        return view.log.locate(position) or head.location
    except AmbiguousPositionError:
        return head.location
