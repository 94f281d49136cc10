"""The XA COMMITs of the last minute, which may be in the binlog and not yet in the engine.

In: stretches of the relay log, and when they were seen. Out: where the first of the recent XA COMMITs begins: snapshots
surely see only what lies before it. Other transactions pass an XA COMMIT meanwhile (measured on 10.5, 10.11, 11.8).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from replica.relay_log.location import RelayLocation
from replica.relay_log.xa import xa_groups_in
from replica.rows.scan.xa import XaAction

if TYPE_CHECKING:
    from replica.relay_log.log import RelayLog

XA_S: Final = 60.0
"""How long an XA COMMIT may take from the binlog to the engine."""


class XaCommits:
    """The XA COMMITs of one relay log; at most one place a look is kept, for a minute."""

    def __init__(self, log: RelayLog) -> None:
        self._log = log
        self._seen: deque[tuple[float, RelayLocation]] = deque()

    def see(self, start: RelayLocation, end: RelayLocation, now_s: float) -> bool:
        """Remember the first XA COMMIT between two places as one of `now_s`; tell whether there is one."""
        first = self._log.steadily(lambda: self._first(max(start, self._log.oldest()), end))
        if first is not None:
            self._seen.append((now_s, first))
        return first is not None

    def first(self, now_s: float) -> RelayLocation | None:
        """Return where the first one of the last minute begins."""
        while self._seen and self._seen[0][0] < now_s - XA_S:
            self._seen.popleft()
        return self._seen[0][1] if self._seen else None

    def keep_from(self) -> RelayLocation | None:
        """Return the first place that `first` may name."""
        return min((place for _, place in self._seen), default=None)

    def _first(self, start: RelayLocation, end: RelayLocation) -> RelayLocation | None:
        for number, part in self._log.xa_stretches(start, end):
            for group in xa_groups_in(part):
                if group.action is XaAction.COMMIT:
                    return RelayLocation(number, part.start + group.start)
        return None
