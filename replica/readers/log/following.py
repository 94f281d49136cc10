"""Reader that follows a relay log as it grows, and returns its groups as soon as they are committed.

`Follower` works on a relay directory that this process, another one or no process writes. It yields `Part`s of whole
groups; a group with DDL is a part of its own. `earliest`, `start_after` and `last_transactions` return the `Beginning`
at which a follower starts. This module only reads files and takes no lock, so it does not affect the writer.

Nothing is skipped silently: groups that were purged before they were read are an error, and so is a log that was
created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, DataLossError, RelayError
from replica.protocol.gtid import GtidPosition
from replica.readers.log.in_relay_log import RelayLogReader
from replica.relay_log.groups.groups import GtidSearch, RelayGroups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.protocol.gtid import Gtid
    from replica.readers.log.reader import Part
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog

POLL_S: Final = 0.005
"""Interval in seconds at which the head is polled by reading one page; a person does not notice the delay."""
IDLE_POLL_S: Final = 0.02
BUSY_POLLS: Final = 200
"""Number of short intervals after the last change. Later intervals are longer, and polling takes less than 1 % of a
core.
"""


class Follower:
    """Reader of one log. `parts` continues after the last call; `wait` waits for more groups.

    `sleep` pauses for a number of seconds, and an error that it raises ends the wait.
    """

    def __init__(self, log: RelayLog, start: RelayHead, sleep: Callable[[float], None]) -> None:
        self._log = log
        self._sleep = sleep
        self.reached = start
        """End of the parts that were returned."""

    def parts(self, end: RelayHead) -> Iterator[Part]:
        """Yield all parts from `reached` up to `end`, which lies after it."""
        yield from RelayLogReader(self._log).parts(self.reached.location, end.location)
        self.reached = end

    def wait(self) -> RelayHead:
        """Wait until the log has grown beyond the parts returned so far; return the new end."""
        poll = 0
        while True:
            head = self._log.head()
            if head is not None:
                if head.location < self.reached.location:
                    raise RelayError(
                        f"the relay log ends at {head.position}, before {self.reached.position}, which was shown last.",
                        hint="The relay log was begun again: someone emptied the directory, or the replica now starts "
                        "at another position.",
                    )
                if head.location > self.reached.location:
                    return head
            self._sleep(POLL_S if poll < BUSY_POLLS else IDLE_POLL_S)
            poll += 1


def wait_for_log(log: RelayLog, sleep: Callable[[float], None]) -> RelayHead:
    """Wait until the log exists and return its end."""
    while (head := log.head()) is None:
        sleep(POLL_S)
    return head


# Domains interleave, so one location rarely fits all domains of a position. A `Beginning` is therefore a location and
# the GTIDs to skip after it.


class Beginning(NamedTuple):
    """Location at which a reading starts.

    `skip` has the GTIDs up to which transactions after the location are not shown, one per domain.
    """

    place: RelayHead
    skip: GtidPosition = GtidPosition()


def earliest(log: RelayLog, head: RelayHead) -> Beginning:
    """Return the start of the log, its first remaining transaction."""
    return Beginning(log.at(log.oldest()) if head.location.offset else head)


def start_after(log: RelayLog, head: RelayHead, position: GtidPosition) -> Beginning:
    """Return the start after a position; domains that it does not name start at the first location of its GTIDs.

    Raises:
        DataLossError: The transactions after the position were purged.
        ConfigError: The log does not contain one of its domains.
    """
    location = log.locate(position)
    if location is not None:
        return Beginning(log.at(location))
    first = log.first_position() or GtidPosition()
    found = [place for gtid in position if (place := _end_of_group(log, head, first, gtid)) is not None]
    return Beginning(log.at(min(found)) if found else head, position)


def _end_of_group(log: RelayLog, head: RelayHead, first: GtidPosition, gtid: Gtid) -> RelayLocation | None:
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
    """Return the start from which `count` transactions of any domain and table follow.

    Return the start of the log if it has fewer transactions.
    """
    if count < 1:
        return Beginning(head)
    left = count + 1  # the start is the end of the group before the first shown one
    for end in RelayGroups(log.directory).ends_before(head.location):
        left -= 1
        if not left:
            return Beginning(log.at(end))
    return earliest(log, head)
