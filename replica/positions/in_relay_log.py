"""Times, places and transactions of a replica's relay log as GTID positions; no server is asked.

Refused: what the log does not hold, with what it does hold.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from replica.errors import ConfigError, DataLossError
from replica.option_places import shown_instant
from replica.positions.found import FoundPosition, NextGroup
from replica.relay_log.groups import RelayGroups

if TYPE_CHECKING:
    from replica.protocol.gtid import BinlogPosition, Gtid
    from replica.relay_log.groups import LogGroup
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog


def at_time(log: RelayLog, time_s: int) -> FoundPosition:
    """Find the position before the first group of the log that was committed at `time_s` or later; its end if there is
    none.

    Raises:
        ConfigError: the time is still to come.
        DataLossError: the log begins later.
    """
    if time_s > time.time():
        raise ConfigError(f"{shown_instant(time_s)} is still to come.", hint="Name a time that has passed.")
    head = _head(log)
    found = log.steadily(lambda: RelayGroups(log.directory).first_at(time_s))
    if found is None:
        return FoundPosition(head.position, None)
    first = log.first_position()
    if first and found.before.position == first:
        raise DataLossError(
            f"the relay log begins after {first}, with a transaction of {shown_instant(found.after.timestamp)}: what "
            f"was committed from {shown_instant(time_s)} on may not all be there.",
            hint="Name a later time, or ask the primary (--direct).",
        )
    return FoundPosition(found.before.position, NextGroup.of(found))


def at_place(log: RelayLog, place: BinlogPosition) -> FoundPosition:
    """Find the position of a place of the primary's binlog; inside an event group, the position before it.

    Raises:
        DataLossError: the log has not got that part of the primary's binlog.
    """
    head = _head(log)
    around = log.steadily(lambda: RelayGroups(log.directory).around(place))
    if around is None:
        raise DataLossError(
            f"the relay log holds nothing of {place}: it begins after {log.first_position() or 'no transaction'} and "
            f"is at {head.primary}.",
            hint="Ask the primary (--direct).",
        )
    return FoundPosition(around.before.position, _next(around.group), inside=around.inside)


def behind(log: RelayLog, gtid: Gtid) -> FoundPosition:
    """Find the position, in all domains, behind the event group of a GTID.

    Raises:
        DataLossError: the log does not hold it.
    """
    head = _head(log)
    log.refuse_repeated(gtid)

    def look() -> tuple[LogGroup | None, LogGroup | None]:
        groups = RelayGroups(log.directory)
        found = groups.find(gtid)
        return found, found and groups.next_to(found.after.location)

    found, following = log.steadily(look)
    if found is None:
        raise DataLossError(
            f"{gtid} is not in the relay log, which goes from {log.first_position() or 'the beginning'} to "
            f"{head.position}.",
            hint="mariadb-replica explain tells why.",
        )
    return FoundPosition(found.after.position, _next(following))


def _head(log: RelayLog) -> RelayHead:
    head = log.head()
    if head is None:
        raise DataLossError(f"the relay log {log.directory} is empty.", hint="Its replica has not begun it yet.")
    return head


def _next(group: LogGroup | None) -> NextGroup | None:
    return None if group is None else NextGroup.of(group)
