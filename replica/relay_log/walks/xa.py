"""The XA transactions that are prepared at a place of the relay log, and the earlier groups that a range of it needs.

In: places of the log, and the transactions that are open at the first of them. Out: per range the prepared groups that
an XA COMMIT in it releases, and the transactions open behind it. Only the parts that the sidecars mark are read, and
of those only what tells XA groups apart; a log without XA costs a look into the sidecars and at its last 64 KB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.mapped_range import MappedRelayRange
from replica.rows.scan.xa import XaAction, XaGroup, describe, find_xa_groups

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import Gtid
    from replica.relay_log.log import RelayLog, RelayRange

# A coordinator has as many transactions prepared as it has connections; each costs some 500 bytes here.
MAX_OPEN: Final = 65_536


class PreparedGroup(NamedTuple):
    """The place of a prepared group in the log; `location` is its beginning, the end of the group before."""

    xid: XaId
    gtid: Gtid
    location: RelayLocation
    bytes: RelayRange


Prepared = tuple[PreparedGroup, ...]
"""The transactions open at a place, oldest first."""


class XaCommit(NamedTuple):
    """The bytes of the group that commits a prepared one."""

    bytes: RelayRange
    prepared: PreparedGroup


class RangeNeeds(NamedTuple):
    """The groups that a range needs. `commits`: of groups prepared before the range, in order. `unknown`: XA COMMITs of
    others.
    """

    commits: tuple[XaCommit, ...]
    unknown: tuple[XaGroup, ...]

    @property
    def carried(self) -> Prepared:
        """The groups prepared before the range and committed in it, oldest first."""
        return tuple(sorted((commit.prepared for commit in self.commits), key=_begin))


def follow(
    log: RelayLog, ranges: Sequence[tuple[RelayLocation, RelayLocation]], prepared: Prepared
) -> tuple[list[RangeNeeds], Prepared]:
    """Go over neighbouring ranges [start, end) of the log.

    Args:
        log: the relay log.
        ranges: in order, each beginning where the one before ends.
        prepared: the transactions open at the first one's start.

    Returns:
        What each range needs, and the transactions open at the end of the last one.

    Raises:
        DataLossError: a file of the ranges was purged.
        ProtocolError: the bytes are damaged, or there are more open transactions than any server has.
    """
    opened = {group.xid: group for group in prepared}
    needs = []
    for start, end in ranges:
        commits: list[XaCommit] = []
        unknown: list[XaGroup] = []
        for number, part in log.xa_stretches(start, end):
            for group in xa_groups_in(part):
                known = opened.pop(group.xid, None)
                if group.action is XaAction.PREPARE:
                    opened[group.xid] = _place(number, part, group)
                elif group.action is XaAction.COMMIT and known is None:
                    unknown.append(group)
                elif group.action is XaAction.COMMIT and known is not None and known.location < start:
                    commits.append(XaCommit(_bytes(part, group), known))
            check_open(opened)
        needs.append(RangeNeeds(tuple(commits), tuple(unknown)))
    return needs, tuple(opened.values())


def prepared_at(log: RelayLog, location: RelayLocation) -> Prepared:
    """Find the XA transactions open at a place, as far back as the log goes."""
    return log.steadily(lambda: follow(log, [(log.oldest(), location)], ())[1])


def _place(number: int, part: RelayRange, group: XaGroup) -> PreparedGroup:
    return PreparedGroup(group.xid, group.gtid, RelayLocation(number, part.start + group.start), _bytes(part, group))


def _bytes(part: RelayRange, group: XaGroup) -> RelayRange:
    return part._replace(start=part.start + group.start, end=part.start + group.end)


def _begin(group: PreparedGroup) -> RelayLocation:
    return group.location


def check_open(opened: Collection[XaId]) -> None:
    """Refuse more open XA transactions than any server has.

    Raises:
        ProtocolError: names the first of them.
    """
    if len(opened) > MAX_OPEN:
        raise ProtocolError(
            f"more than {MAX_OPEN} XA transactions are prepared and not ended; the oldest is "
            f"{describe(next(iter(opened)))}.",
            hint="Their coordinator has lost them: XA RECOVER lists them, XA ROLLBACK or XA COMMIT ends them.",
        )


def xa_groups_in(part: RelayRange) -> list[XaGroup]:
    """Find the XA groups in whole groups of a relay file."""
    mapped = MappedRelayRange(part)
    return find_xa_groups(mapped.data, checksum=part.checksum, passed=mapped.passed)
