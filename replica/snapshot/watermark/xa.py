"""Track XA COMMITs that are in the binlog and not yet in the engine, and those whose rows the relay log lacks.

Other transactions overtake an XA COMMIT between the binlog and the engine, however long it takes. `XaCommits` compares
the relay log with the output of XA RECOVER. It returns the start of the first XA COMMIT that snapshots may not see, and
the location before which no window may begin. XA RECOVER lists a transaction until the engine has committed it. This
holds on 10.5, 10.11 and 11.8, for transactions of all sessions.
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

    def look(self, end: RelayLocation, listed: Collection[XaId]) -> None:
        """Read the XA groups up to `end`, which the log must have reached before the server was asked for `listed`.

        Raises:
            DataLossError, RelayError: The log cannot be read.
            ProtocolError: The log is damaged.
        """
        if self.judged is None or end > self.judged:
            self._log.steadily(lambda: self._go_on(end, listed))
        self._waiting = {xid: place for xid, place in self._waiting.items() if xid in listed}

    @property
    def first(self) -> RelayLocation | None:
        """Start of the first XA COMMIT that snapshots may not see; None if there is none."""
        return min(self._waiting.values(), default=None)

    def lower(self, proven: RelayHead) -> RelayHead | None:
        """Return the low watermark, before which everything is committed, XA COMMITs included.

        Everything up to `proven` is committed, except XA COMMITs. Return None if no window may begin at the watermark.
        """
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
