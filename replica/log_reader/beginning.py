"""The place to begin to follow a relay log: its end, its beginning, behind a position, or N transactions before its
end.

In: a relay log and what was asked for. Out: a `Beginning`: a place of the log, and the GTIDs that are stepped over
behind it (domains interleave, so that one place rarely serves all). Refused: positions whose next transactions were
purged, and domains the log has never seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ConfigError, DataLossError
from replica.log_reader.in_relay_log import RelayLogReader
from replica.protocol.gtid import GtidPosition
from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.groups.gtid_search import GtidSearch

if TYPE_CHECKING:
    from replica.protocol.gtid import Gtid
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog


class Beginning(NamedTuple):
    """A place to begin. `skip`: transactions up to these are not shown, each in its domain."""

    place: RelayHead
    skip: GtidPosition = GtidPosition()


def earliest(log: RelayLog, head: RelayHead) -> Beginning:
    """Begin at the first transaction that the log still has."""
    return Beginning(log.at(log.oldest()) if head.location.offset else head)


def behind(log: RelayLog, head: RelayHead, position: GtidPosition) -> Beginning:
    """Begin behind a position; domains that it does not name begin where the first of its GTIDs lies.

    Raises:
        DataLossError: what follows the position was purged.
        ConfigError: the log knows nothing of one of its domains.
    """
    location = log.locate(position)
    if location is not None:
        return Beginning(log.at(location))
    first = log.first_position() or GtidPosition()
    found = [place for gtid in position if (place := _behind_one(log, head, first, gtid)) is not None]
    return Beginning(log.at(min(found)) if found else head, position)


def _behind_one(log: RelayLog, head: RelayHead, first: GtidPosition, gtid: Gtid) -> RelayLocation | None:
    """Return the end of the group; None for one that is still to come."""
    begins, ends = first.get(gtid.domain_id), head.position.get(gtid.domain_id)
    if ends is None:
        raise ConfigError(
            f"the relay log knows no domain {gtid.domain_id}: it is at {head.position or 'no position yet'}.",
            hint="A GTID is domain-server-sequence.",
        )
    if gtid.seq_no > ends.seq_no:
        return None
    if begins is not None and gtid.seq_no < begins.seq_no:
        raise DataLossError(
            f"what follows {gtid} was purged: the relay log begins after {first}.",
            hint="--from earliest shows what there is.",
        )
    if gtid == begins:
        return log.oldest()
    group = RelayLogReader(log).find_group(GtidSearch(gtid))
    # A hole in the numbers, or another server's GTID: from where the domain begins, and what is up to it is skipped.
    return group.after.location if group else log.oldest()


def last_transactions(log: RelayLog, head: RelayHead, count: int) -> Beginning:
    """Begin so that `count` transactions follow, of all domains and tables together; all there are if those are
    fewer.
    """
    if count < 1:
        return Beginning(head)
    left = count + 1  # behind the group before the first of them
    for end in RelayGroups(log.directory).ends_before(head.location):
        left -= 1
        if not left:
            return Beginning(log.at(end))
    return earliest(log, head)
