"""The options startingPosition and endingPosition as what they stand for.

In: their canonical text (option_values.py). Out: one of the words, a GTID position, or a time in seconds since 1970.
A time stands for the place before the first transaction, in the order of the binlog, that was committed then or later:
a reading that starts there has it, one that ends there has not, so that [t1, t2) and [t2, t3) have no row in common.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from replica.option_values import instant
from replica.protocol.gtid import GtidPosition


class CommitTime(NamedTuple):
    """Seconds since 1970 (UTC)."""

    seconds: int


Position = Literal["latest", "earliest"] | GtidPosition | CommitTime


def parse_position(text: str) -> Position:
    """The canonical text of an option -> what it stands for."""
    if text == "latest":
        return "latest"
    if text == "earliest":
        return "earliest"
    if ":" in text:
        return CommitTime(instant(text))
    return GtidPosition.parse(text)
