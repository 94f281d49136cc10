"""Follows a relay log as it grows: parts of files, as soon as their groups are committed.

In: a relay directory, written by this process, by another one, or by none any more. Out: `Part`s, each whole groups, a
group with DDL alone in its part. Only files are read and nothing is locked: the writer does not notice.

Refused: groups that were purged before they were read, and a log that was begun again meanwhile: nothing is left out
without a word.
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
"""Between two looks at the head: one read of a page. What a person sees a hundredth of a second later is live."""
IDLE_POLL_S: Final = 0.02
BUSY_POLLS: Final = 200
"""The number of short pauses after the last change; then a pause may be longer, and costs less than 1 % of a core."""


class Follower:
    """The reader of one log. `parts` reads on where the last call ended; `wait` pauses until there is more.

    `sleep` pauses for so many seconds; what it raises ends the waiting.
    """

    def __init__(self, log: RelayLog, start: RelayHead, sleep: Callable[[float], None]) -> None:
        self._log = log
        self._sleep = sleep
        self.reached = start
        """Everything up to here was handed out."""

    def parts(self, end: RelayHead) -> Iterator[Part]:
        """Yield all parts up to `end`, a place in front of the last one."""
        yield from RelayLogReader(self._log).parts(self.reached.location, end.location)
        self.reached = end

    def wait(self) -> RelayHead:
        """Wait until the end of the log lies behind what was handed out; return the new end."""
        poll = 0
        while True:
            head = self._log.head()
            if head is not None:
                if head.location < self.reached.location:
                    raise RelayError(
                        f"the relay log ends at {head.position}, before {self.reached.position}, which was shown last.",
                        hint="It was begun again: someone emptied the directory, or the replica starts elsewhere now.",
                    )
                if head.location > self.reached.location:
                    return head
            self._sleep(POLL_S if poll < BUSY_POLLS else IDLE_POLL_S)
            poll += 1


def wait_for_log(log: RelayLog, sleep: Callable[[float], None]) -> RelayHead:
    """Wait for the end of a log that may not have been begun."""
    while (head := log.head()) is None:
        sleep(POLL_S)
    return head
