"""The limit of a read if sequence numbers must not go back: the option gtidStrictMode, over a relay log.

`OrderLimit.reach` returns the last place before the first transaction that is out of order, so that all rows before it
are read. The log may be written by this query's replica, an earlier query, or a daemon with other options. To begin
with the transaction that is out of order is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.relay_log.groups.repeated import out_of_order

if TYPE_CHECKING:
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.log import RelayLog


class OrderLimit:
    """The limit of one query. `strict`: gtidStrictMode. One thread calls it."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._in_order: tuple[RelayLog, RelayLocation, RelayLocation] | None = None
        """Between these places of the log, no number goes back."""

    def reach(self, log: RelayLog, start: RelayLocation, goal: RelayLocation) -> RelayLocation:
        """Return `goal`, or the place before the first transaction after `start` whose number goes back.

        Raises:
            OutOfOrderGtidError: that transaction comes right after `start`.
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
        """Raise an OutOfOrderGtidError if the range has a transaction whose number goes back."""
        reached = self.reach(log, start, end)
        if reached < end:
            self.reach(log, reached, end)
