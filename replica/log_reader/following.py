"""Follow a relay log as it grows, and read its groups as soon as they are committed.

`Follower` works on a relay directory that this process, another one or no process writes. It yields `Part`s of whole
groups; a group with DDL is a part of its own. It only reads files and takes no lock, so the writer is not affected.
Groups purged before they were read raise an error, and so does a log that was created again. Nothing is skipped
silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import RelayError
from replica.log_reader.in_relay_log import RelayLogReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.log_reader.part import Part
    from replica.relay_log.location import RelayHead
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
        """Wait until the log has grown beyond the returned parts; return the new end."""
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
