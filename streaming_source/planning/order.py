"""The limit of a reading where sequence numbers must not go back: the option gtidStrictMode, over a relay log.

In: a log, which a replica of our own, an earlier query or a daemon with other options has written. Out: the last place
before the first transaction that is out of order, so that all rows before it are read. Refused: to begin with that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.groups.repeated import out_of_order

if TYPE_CHECKING:
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog


class OrderLimit:
    """One limit. `strict`: gtidStrictMode. Called by one thread."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._in_order: tuple[RelayLog, RelayLocation, RelayLocation] | None = None
        """Between these places of the log no number goes back."""

    def reach(self, log: RelayLog, start: RelayLocation, goal: RelayLocation) -> RelayLocation:
        """Return `goal`, or the place before the first transaction behind `start` whose number goes back.

        Raises:
            OutOfOrderGtidError: that transaction comes right behind `start`.
        """
        if not self._strict or goal <= start:
            return goal
        begin = start
        if self._in_order is not None and self._in_order[0] is log and self._in_order[1] <= start:
            begin = max(start, self._in_order[2])
        found = log.first_out_of_order(begin, goal) if begin < goal else None
        if found is None:
            self._in_order = log, start, goal
            return goal
        group, last = found
        before = group.before.location
        if before <= start or log.is_empty(start, before):
            raise out_of_order(group.gtid, last, f"at {group.before.primary}")
        return before

    def check(self, log: RelayLog, start: RelayLocation, end: RelayLocation) -> None:
        """Refuse a range that holds a transaction whose number goes back."""
        reached = self.reach(log, start, end)
        if reached < end:
            self.reach(log, reached, end)
