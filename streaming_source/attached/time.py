"""The place of a time in a relay log that another process writes.

In: the log and the time. Out: the place before the first group that was committed then or later; the log's end where it
holds none so late yet. Refused: a time to come, and one from before the log begins, unless the gap is accepted.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from replica.errors import ConfigError, DataLossError
from replica.option_places import shown_instant
from replica.relay_log.groups import RelayGroups

if TYPE_CHECKING:
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog


def place_before(log: RelayLog, time_s: int, head: RelayHead, *, accept_gap: bool) -> RelayHead:
    """Return the place before `time_s`, in seconds since 1970; `head` is the log's.

    Raises:
        ConfigError: the time is still to come, by this machine's clock.
        DataLossError: the log begins later, and what it began with may not be all of that time.
    """
    if time_s > time.time():
        raise ConfigError(
            f"{shown_instant(time_s)} is still to come: it is {shown_instant(int(time.time()))}.",
            hint="Name a time that has passed, or latest.",
        )
    found = log.steadily(lambda: RelayGroups(log.directory).first_at(time_s))
    if found is None:
        return head
    first = log.first_position()
    if first and found.before.position == first and not accept_gap:
        raise DataLossError(
            f"the relay log {log.directory} begins after {first}, with a transaction of "
            f"{shown_instant(found.after.timestamp)}: what was committed from {shown_instant(time_s)} on may not "
            f"all be there.",
            hint="Start at a later time, or at earliest; failOnDataLoss=false starts there too.",
        )
    return found.before
