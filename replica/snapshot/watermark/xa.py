"""The XA COMMITs that are in the binlog and not yet in the engine, and those whose rows the relay log does not have.

In: the relay log, and again and again which XA transactions the server lists as prepared. Out: where the first XA
COMMIT begins that snapshots may not see, and the place before which no window may begin. Other transactions pass an XA
COMMIT on its way from the binlog to the engine, however long that takes. XA RECOVER lists it until the engine is done
(seen on 10.5, 10.11 and 11.8, with sessions of its own and of others).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.xa import check_open, xa_groups_in
from replica.rows.scan.xa import XaAction

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.protocol.events.transaction_events import XaId
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog

ROWLESS: Final = "the end of XA transactions that were prepared before the relay log begins"
"""Why there is no L although something is proven."""


class XaCommits:
    """The XA COMMITs of one relay log. Not thread-safe.

    `judged`: how far the log was looked at. `readable`: a window that begins before it meets an XA COMMIT that was
    prepared before the log begins, so that its rows are not at hand; None where there is none.
    """

    def __init__(self, log: RelayLog) -> None:
        self._log = log
        self.judged: RelayLocation | None = None
        self.readable: RelayLocation | None = None
        self._prepared: frozenset[XaId] = frozenset()
        self._waiting: dict[XaId, RelayLocation] = {}

    def look(self, end: RelayLocation, listed: Collection[XaId]) -> None:
        """Look at the log up to `end`, which it had reached before the server was asked what it lists as prepared.

        Raises:
            DataLossError, RelayError: the log cannot be read.
            ProtocolError: its bytes are damaged.
        """
        if self.judged is None or end > self.judged:
            self._log.steadily(lambda: self._go_on(end, listed))
        self._waiting = {xid: place for xid, place in self._waiting.items() if xid in listed}

    @property
    def first(self) -> RelayLocation | None:
        """Return where the first one begins that snapshots may not see."""
        return min(self._waiting.values(), default=None)

    def lower(self, proven: RelayHead) -> RelayHead | None:
        """Return L, where all but XA COMMITs is committed up to `proven`; None where no window may begin there."""
        first = self.first
        found = proven if first is None or first >= proven.location else self._log.at(first)
        return None if self.readable is not None and found.location < self.readable else found

    def _go_on(self, end: RelayLocation, listed: Collection[XaId]) -> None:
        oldest = self._log.oldest()
        start = oldest if self.judged is None else max(oldest, self.judged)
        prepared, waiting, readable = set(self._prepared), dict(self._waiting), self.readable
        for number, part in self._log.xa_stretches(start, end):
            for group in xa_groups_in(part):
                if group.action is XaAction.PREPARE:
                    prepared.add(group.xid)
                    waiting.pop(group.xid, None)  # the id is free again: the transaction before is in the engine
                    continue
                if group.action is XaAction.COMMIT and group.xid not in prepared:
                    readable = RelayLocation(number, part.start + group.end)
                if group.action is XaAction.COMMIT and group.xid in listed:
                    waiting.setdefault(group.xid, RelayLocation(number, part.start + group.start))
                prepared.discard(group.xid)
            check_open(prepared)
        self._prepared, self._waiting, self.readable = frozenset(prepared), waiting, readable
        self.judged = end
