"""XA transactions that are prepared in the binlog and unknown to the primary, so that nothing will ever end them.

A crash can lose a transaction between its entry in the binlog and the storage engine's (relaxed durability). A session
with sql_log_bin=0 ends one without a trace. The relay log would be kept from its group on forever. So once such a
transaction holds back whole files, `ForgottenTransactions` asks the primary from time to time. It gives a transaction
up if XA RECOVER does not list it in two checks and the binlog up to the first check does not end it.

If such a transaction is committed after all, its XA COMMIT raises an error that its rows are not available.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from replica.errors import DisconnectedError
from replica.protocol.gtid import covers
from replica.rows.scan.xa import describe

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.walks.xa import Prepared, PreparedGroup
    from streaming_source.ranges.places import Feed

LOOK_EVERY_S = 60.0
"""Seconds between two checks. Each is a login, and keeping some more files for a minute does no harm."""

_log = logging.getLogger(__name__)


class ForgottenTransactions:
    """The abandoned transactions of a query. It remembers which were missing at the first check."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._next_look_s = 0.0
        self._missing: dict[PreparedGroup, GtidPosition] = {}

    def among(self, prepared: Prepared, position: GtidPosition) -> frozenset[PreparedGroup]:
        """Return those of `prepared`, open at `position`, that the primary does not know. It asks at most every
        LOOK_EVERY_S.
        """
        now = time.monotonic()
        if now < self._next_look_s:
            return frozenset()
        self._next_look_s = now + LOOK_EVERY_S
        try:
            latest = self._feed.latest_and_prepared()
        except DisconnectedError:
            return frozenset()  # the replica raises itself after it has tried long enough
        if latest is None:
            return frozenset()
        # A server that has not reached the group, such as a replica that took over, cannot know the transaction.
        missing = [g for g in prepared if g.xid not in latest.prepared and _reached(latest.position, g)]
        gone = frozenset(g for g in missing if g in self._missing and covers(position, self._missing[g]))
        self._missing = {g: self._missing.get(g, latest.position) for g in missing if g not in gone}
        for group in gone:
            _log.warning(
                "the primary no longer knows the XA transaction %s, prepared in %s, and its binlog does not end it: "
                "its rows are dropped",
                describe(group.xid),
                group.gtid,
            )
        return gone


def _reached(position: GtidPosition, group: PreparedGroup) -> bool:
    last = position.get(group.gtid.domain_id)
    return last is not None and last.seq_no >= group.gtid.seq_no
