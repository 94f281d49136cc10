"""The extent of the transactions of a range: a few numbers that can show that none of them matches a condition.

`extent_of` takes the groups of a range from the planner's scan, and returns a `GroupExtent` of plain values that can be
pickled. Commit times are the seconds in which groups ended. They need not rise with the sequence numbers, so both ends
are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from replica.rows.decode.batch import Groups


class GroupExtent(NamedTuple):
    """The extent of the transactions of a range: (domain, lowest, highest sequence number) of each of its domains.

    `seconds`: the earliest and the latest commit, in seconds since 1970; None if unknown.
    """

    domains: tuple[tuple[int, int, int], ...]
    seconds: tuple[int, int] | None = None

    def joined(self, other: GroupExtent) -> GroupExtent:
        """Return the extent of both ranges together."""
        ends = {domain: (low, high) for domain, low, high in self.domains}
        for domain, low, high in other.domains:
            mine = ends.get(domain, (low, high))
            ends[domain] = min(low, mine[0]), max(high, mine[1])
        seconds = None
        if self.seconds is not None and other.seconds is not None:
            seconds = min(self.seconds[0], other.seconds[0]), max(self.seconds[1], other.seconds[1])
        return GroupExtent(tuple((domain, *pair) for domain, pair in sorted(ends.items())), seconds)


def extent_of(groups: Groups) -> GroupExtent:
    """Return the extent of at least one group."""
    import numpy as np

    domains = []
    for domain in np.unique(groups.domain).tolist():
        numbers = groups.sequence_numbers[groups.domain == domain]
        domains.append((domain, int(numbers.min()), int(numbers.max())))
    return GroupExtent(tuple(domains), (int(groups.commit_ts.min()), int(groups.commit_ts.max())))
