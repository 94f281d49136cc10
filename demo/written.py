"""The writes of the shop, and how many of them lie up to a GTID position.

In: a note for each round trip to the server: the last GTID, the clock before it was sent, the row changes in it. Out:
of a position, how many row changes lie up to it, and when the first ones behind it were sent. The writer's thread adds,
the screen's reads.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple


class Reached(NamedTuple):
    """The row changes up to a position. `waiting_since`: the clock when the oldest of the rest was sent."""

    rows: int
    waiting_since: float | None


@dataclass
class Domain:
    """The notes of one GTID domain, in order: last sequence number, the clock, row changes up to there."""

    numbers: list[int] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def up_to(self, number: int) -> tuple[int, float | None]:
        """Return the row changes up to a sequence number, and when the first ones behind it were sent."""
        count = bisect.bisect_right(self.numbers, number)
        return (self.rows[count - 1] if count else 0), (self.sent[count] if count < len(self.numbers) else None)


@dataclass
class Written:
    """The notes of all domains."""

    rows: int = 0
    transactions: int = 0
    altered: bool = False
    told: list[tuple[str, float, str]] = field(default_factory=list)
    """GTID, clock and words of what the screen tells by name."""
    domains: dict[str, Domain] = field(default_factory=dict)

    def add(self, gtid: str, sent: float, *, rows: int, transactions: int, told: str = "") -> None:
        """Note what one round trip has committed."""
        domain, _, number = gtid.split("-")
        notes = self.domains.setdefault(domain, Domain())
        notes.rows.append((notes.rows[-1] if notes.rows else 0) + rows)
        notes.sent.append(sent)
        notes.numbers.append(int(number))  # last: a reader counts by this list
        self.rows += rows
        self.transactions += transactions
        if told:
            self.told.append((gtid, sent, told))

    def reached(self, position: str) -> Reached:
        """Return what lies up to a GTID position."""
        at = numbers(position)
        found = [notes.up_to(at.get(domain, 0)) for domain, notes in list(self.domains.items())]
        waiting = [sent for _, sent in found if sent is not None]
        return Reached(sum(rows for rows, _ in found), min(waiting, default=None))


def numbers(position: str) -> dict[str, int]:
    """Return the sequence number of each domain of a GTID position."""
    return {gtid.split("-")[0]: int(gtid.split("-")[2]) for gtid in position.split(",") if gtid}


def covers(position: str, gtid: str) -> bool:
    """Tell whether a transaction lies up to a position."""
    domain, _, number = gtid.split("-")
    return numbers(position).get(domain, 0) >= int(number)
