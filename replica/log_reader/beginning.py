"""Start locations for following a relay log: its end, its beginning, after a position, or N transactions before the
end.

Every function returns a `Beginning`: a location and the GTIDs to skip after it. Domains interleave, so one location
rarely fits all domains of a position. A position whose next transactions were purged is refused, and so is a domain
that the log does not contain.
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
    """Start location. `skip`: transactions up to these GTIDs, per domain, are not shown."""

    place: RelayHead
    skip: GtidPosition = GtidPosition()


def earliest(log: RelayLog, head: RelayHead) -> Beginning:
    """Return the start of the log, its first remaining transaction."""
    return Beginning(log.at(log.oldest()) if head.location.offset else head)


def behind(log: RelayLog, head: RelayHead, position: GtidPosition) -> Beginning:
    """Return the start after a position; domains that it does not name start at the first location of its GTIDs.

    Raises:
        DataLossError: The transactions after the position were purged.
        ConfigError: The log does not contain one of its domains.
    """
    location = log.locate(position)
    if location is not None:
        return Beginning(log.at(location))
    first = log.first_position() or GtidPosition()
    found = [place for gtid in position if (place := _behind_one(log, head, first, gtid)) is not None]
    return Beginning(log.at(min(found)) if found else head, position)


def _behind_one(log: RelayLog, head: RelayHead, first: GtidPosition, gtid: Gtid) -> RelayLocation | None:
    """Return the end of the group; None if the group is not in the log yet."""
    begins, ends = first.get(gtid.domain_id), head.position.get(gtid.domain_id)
    if ends is None:
        raise ConfigError(
            f"the relay log has no transaction of domain {gtid.domain_id}: it is at "
            f"{head.position or 'no position yet'}.",
            hint="A GTID is domain-server-sequence.",
        )
    if gtid.seq_no > ends.seq_no:
        return None
    if begins is not None and gtid.seq_no < begins.seq_no:
        raise DataLossError(
            f"the transactions after {gtid} were purged: the relay log begins after {first}.",
            hint="Use --from earliest to start at the first transaction that is left.",
        )
    if gtid == begins:
        return log.oldest()
    group = RelayLogReader(log).find_group(GtidSearch(gtid))
    # For a gap in the numbers, or another server's GTID, start at the log's beginning and skip up to the GTID.
    return group.after.location if group else log.oldest()


def last_transactions(log: RelayLog, head: RelayHead, count: int) -> Beginning:
    """Return the start from which `count` transactions of any domain and table follow, or the log's start if there are
    fewer.
    """
    if count < 1:
        return Beginning(head)
    left = count + 1  # the start is the end of the group before the first shown one
    for end in RelayGroups(log.directory).ends_before(head.location):
        left -= 1
        if not left:
            return Beginning(log.at(end))
    return earliest(log, head)
