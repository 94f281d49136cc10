"""Writes of the shop, and the number of row changes up to a GTID position.

`Written.add` records a round trip to the server: the last GTID, the time before it was sent, and its row changes.
`Written.reached` returns the row changes up to a position, and the time when the first later changes were sent. The
writer's thread adds, and the screen's thread reads.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple


class Reached(NamedTuple):
    """Row changes up to a position. `waiting_since`: time when the oldest later change was sent, in Unix seconds."""

    rows: int
    waiting_since: float | None


@dataclass
class Domain:
    """Records of one GTID domain in order: last sequence number, time, and row changes up to that number."""

    numbers: list[int] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def up_to(self, number: int) -> tuple[int, float | None]:
        """Return the row changes up to a sequence number, and the time when the first later changes were sent."""
        count = bisect.bisect_right(self.numbers, number)
        return (self.rows[count - 1] if count else 0), (self.sent[count] if count < len(self.numbers) else None)


@dataclass
class Written:
    """Records of all domains. One thread adds, and another thread reads."""

    rows: int = 0
    transactions: int = 0
    altered: bool = False
    told: list[tuple[str, float, str]] = field(default_factory=list)
    """GTID, time and text of the special changes that the screen names."""
    domains: dict[str, Domain] = field(default_factory=dict)

    def add(self, gtid: str, sent: float, *, rows: int, transactions: int, told: str = "") -> None:
        """Record a committed round trip.

        Args:
            gtid: its last GTID.
            sent: time before it was sent, in Unix seconds.
            rows: number of its row changes.
            transactions: number of its transactions.
            told: text of a special change for the screen; empty for ordinary changes.
        """
        domain, _, number = gtid.split("-")
        notes = self.domains.setdefault(domain, Domain())
        notes.rows.append((notes.rows[-1] if notes.rows else 0) + rows)
        notes.sent.append(sent)
        notes.numbers.append(int(number))  # last, because a reader counts by this list
        self.rows += rows
        self.transactions += transactions
        if told:
            self.told.append((gtid, sent, told))

    def reached(self, position: str) -> Reached:
        """Return the row changes up to a GTID position."""
        at = numbers(position)
        found = [notes.up_to(at.get(domain, 0)) for domain, notes in list(self.domains.items())]
        waiting = [sent for _, sent in found if sent is not None]
        return Reached(sum(rows for rows, _ in found), min(waiting, default=None))


def numbers(position: str) -> dict[str, int]:
    """Return the sequence number of each domain of a GTID position."""
    return {gtid.split("-")[0]: int(gtid.split("-")[2]) for gtid in position.split(",") if gtid}


def covers(position: str, gtid: str) -> bool:
    """Return True if the GTID position includes the transaction `gtid`."""
    domain, _, number = gtid.split("-")
    return numbers(position).get(domain, 0) >= int(number)
