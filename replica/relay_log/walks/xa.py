"""XA transactions that are prepared at a location, and the earlier groups that a range of the log needs.

`follow` takes consecutive ranges and the transactions open at the start. For each range, `follow` returns the prepared
groups that an XA COMMIT in the range commits, and then the transactions open at the end. Only the parts that the index
files mark are read. For a log without XA, the index files and the last 64 KB of the log are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.relay_log.location import RelayLocation
from replica.relay_log.walks.ddl import MappedRelayRange
from replica.rows.scan.xa import XaAction, XaGroup, describe, find_xa_groups

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import Gtid
    from replica.relay_log.log import RelayLog, RelayRange

# A coordinator prepares at most one transaction per connection, and each takes about 500 bytes here.
MAX_OPEN: Final = 65_536


class PreparedGroup(NamedTuple):
    """Prepared group in the log.

    `location` is the start of the group, which is the end of the previous group.
    """

    xid: XaId
    gtid: Gtid
    location: RelayLocation
    bytes: RelayRange


Prepared = tuple[PreparedGroup, ...]
"""Open transactions at a location, oldest first."""


class XaCommit(NamedTuple):
    """Bytes of the group that commits a prepared group."""

    bytes: RelayRange
    prepared: PreparedGroup


class RangeNeeds(NamedTuple):
    """Earlier groups that a range needs.

    Attributes:
        commits: XA COMMITs of groups that were prepared before the range, in order.
        unknown: XA COMMITs of transactions that are not known to be prepared.
    """

    commits: tuple[XaCommit, ...]
    unknown: tuple[XaGroup, ...]

    @property
    def carried(self) -> Prepared:
        """Groups prepared before the range and committed in it, oldest first."""
        return tuple(sorted((commit.prepared for commit in self.commits), key=_begin))


def follow(
    log: RelayLog, ranges: Sequence[tuple[RelayLocation, RelayLocation]], prepared: Prepared
) -> tuple[list[RangeNeeds], Prepared]:
    """Return the needs of consecutive ranges [start, end) of the log.

    Args:
        log: Relay log.
        ranges: Ranges in order; each begins where the previous one ends.
        prepared: Transactions open at the start of the first range.

    Returns:
        The needs of each range, and the transactions open at the end of the last one.

    Raises:
        DataLossError: A file of the ranges was purged.
        ProtocolError: The log is damaged, or more transactions are open than any server has.
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
    """Return the XA transactions that are open at a location, within the range of the log."""
    return log.steadily(lambda: follow(log, [(log.oldest(), location)], ())[1])


def _place(number: int, part: RelayRange, group: XaGroup) -> PreparedGroup:
    return PreparedGroup(group.xid, group.gtid, RelayLocation(number, part.start + group.start), _bytes(part, group))


def _bytes(part: RelayRange, group: XaGroup) -> RelayRange:
    return part._replace(start=part.start + group.start, end=part.start + group.end)


def _begin(group: PreparedGroup) -> RelayLocation:
    return group.location


def check_open(opened: Collection[XaId]) -> None:
    """Raise ProtocolError, with the oldest transaction, if more XA transactions are open than any server has."""
    if len(opened) > MAX_OPEN:
        raise ProtocolError(
            f"more than {MAX_OPEN} XA transactions are prepared and not ended; the oldest is "
            f"{describe(next(iter(opened)))}.",
            hint="Their coordinator has lost them: XA RECOVER lists them, XA ROLLBACK or XA COMMIT ends them.",
        )


def xa_groups_in(part: RelayRange) -> list[XaGroup]:
    """Return the XA groups in a range of whole groups."""
    mapped = MappedRelayRange(part)
    return find_xa_groups(mapped.data, checksum=part.checksum, on_progress=mapped.release_before)
