"""Receive a part of a primary's binlog into a temporary relay log, search it as it arrives, and drop it.

`pass_by` takes the start and end positions and a search function. It returns the first found group with the XA
transactions that are prepared before it. At most OWN_LOG_BYTES plus one transaction are on disk (own_log.py), and
nothing is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import DisconnectedError
from replica.primary_reader.own_log import own_log
from replica.protocol.gtid import Order
from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_log.walks.xa import follow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from replica.live.embedded import EmbeddedReplica
    from replica.options.config import ReplicaConfig
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.groups.groups import LogGroup
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.xa import Prepared, PreparedGroup

    Look = Callable[[RelayGroups, RelayLocation], LogGroup | None]

POLL_S: Final = 0.1
SILENCE_S: Final = 120.0
"""Maximum silence in seconds. The primary needs seconds to find a position inside a file of 1 GB, on a slow disk a
minute.
"""


class Passed(NamedTuple):
    """Result of a search.

    Attributes:
        group: The found group; None if it is not before the end.
        opened: XA transactions prepared before the group, oldest first, with the position before each.
        following: Group after `group`; None if there is none.
    """

    group: LogGroup | None
    opened: Mapping[XaId, GtidPosition]
    following: LogGroup | None

    @property
    def resume(self) -> GtidPosition | None:
        """Position from which a reader also gets the rows of prepared XA transactions, see FoundPosition."""
        return next(iter(self.opened.values()), None)


class TooFarError(Exception):
    """The search would receive more than the allowed bytes. This error never leaves this package."""


def pass_by(
    config: ReplicaConfig,
    start: GtidPosition,
    end: GtidPosition,
    look: Look,
    log: FilteringBoundLogger,
    *,
    most_bytes: int | None = None,
) -> Passed:
    """Receive the binlog after `start` until `look` finds a group, or up to `end`.

    `look` is called with the log and the location up to which it has searched.

    Raises:
        TooFarError: `end` is more than `most_bytes` after `start`.
        DisconnectedError: Nothing arrives for SILENCE_S.
        ReplicaError: Any error that ends a replica.
    """
    if _reached(start, end):
        return Passed(None, {}, None)
    with own_log(config, start, log) as own:
        replica = own.replica
        groups, opened = RelayGroups(own.log.directory), _Opened(own.log)
        seen = RelayLocation(0, 0)
        silent_s, removed = 0.0, 0
        while True:
            head = replica.head()
            if head.location.offset:
                if most_bytes is not None and removed + own.log.total_bytes() > most_bytes:
                    raise TooFarError
                found = look(groups, seen)
                if found is not None:
                    opened.follow_to(found.before)
                    return Passed(found, opened.positions, _following(replica, groups, found, end))
                opened.follow_to(head)
                if _reached(head.position, end):
                    return Passed(None, opened.positions, None)
                seen = head.location
                gone = [relay_path(own.log.directory, number) for number in range(own.log.oldest().file, seen.file)]
                removed += sum(path.stat().st_size for path in gone)
                own.log.purge_before(seen)
            if replica.wait_beyond(head.location, POLL_S):
                silent_s = 0.0
            elif (silent_s := silent_s + POLL_S) > SILENCE_S:
                raise DisconnectedError(f"{own.log.directory}: the primary sends nothing after {head.position}.")


def _following(replica: EmbeddedReplica, groups: RelayGroups, found: LogGroup, end: GtidPosition) -> LogGroup | None:
    """Return the group after `found`; None if the binlog ends with `found`."""
    if not _reached(found.after.position, end):
        replica.wait_beyond(found.after.location, SILENCE_S)
    return groups.next_to(found.after.location)


def _reached(position: GtidPosition, end: GtidPosition) -> bool:
    return position.compare(end) in (Order.EQUAL, Order.AFTER)


class _Opened:
    """XA transactions that are prepared at a moving location; the files before the location may be removed."""

    def __init__(self, log: RelayLog) -> None:
        self._log = log
        self._at: RelayLocation | None = None
        self._prepared: Prepared = ()
        self._before: dict[PreparedGroup, GtidPosition] = {}

    def follow_to(self, head: RelayHead) -> None:
        start = self._at or RelayLocation(min(1, head.location.file), 0)
        _, self._prepared = follow(self._log, [(start, head.location)], self._prepared)
        self._at = head.location
        self._before = {
            group: self._before.get(group) or self._log.at(group.location).position for group in self._prepared
        }

    @property
    def positions(self) -> dict[XaId, GtidPosition]:
        return {group.xid: self._before[group] for group in self._prepared}
