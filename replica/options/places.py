"""Parsers of start and end positions: a word, a GTID position, or a time.

In: the text of an option. Out: a `Position`, whose text is the canonical one. A time means the place before the first
transaction, in binlog order, that was committed at that time or later. A range that starts at the time includes that
transaction, and a range that ends there excludes it. So [t1, t2) and [t2, t3) share no row. Refused with a ValueError,
whose words follow the option's text: ambiguous text, and positions in the notation of other programs.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Final, Literal, NamedTuple

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition, foreign_position

MAX_INSTANT: Final = 1 << 32
"""Upper bound of times: events store their time in 32 bits."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DATE: Final = re.compile(r"(19|20|21)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_TIME: Final = re.compile(r"\d{4}-?\d\d-?\d\d[Tt]")


class CommitTime(NamedTuple):
    """A commit time in seconds since 1970 (UTC)."""

    seconds: int

    def __str__(self) -> str:
        return shown_instant(self.seconds)


Position = Literal["latest", "earliest"] | GtidPosition | CommitTime


def instant(text: str) -> int:
    """Return the time of ISO 8601 text in seconds since 1970 (UTC); parts of a second are rounded up.

    Examples are '2026-11-21T20:00:00Z' and '2026-11-21 21:00+01:00'.

    Raises:
        ValueError: the text is no time, has no time zone, or is outside the range of a binlog (1970 to 2106).
    """
    try:
        parsed = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("is not a time such as 2026-11-21T20:00:00Z") from None
    if parsed.tzinfo is None:
        raise ValueError("has no time zone; append Z (UTC) or an offset such as +01:00")
    seconds = math.ceil((parsed - _EPOCH).total_seconds())
    if not 0 <= seconds < MAX_INSTANT:
        raise ValueError("is outside 1970 to 2106, the range of a binlog")
    return seconds


def shown_instant(seconds: int) -> str:
    """Return seconds since 1970 as text that `instant` reads, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def starting_place(text: str) -> Position:
    """Parse the start of a stream: latest, earliest, a GTID position or a time."""
    word = text.strip()
    if word.lower() == "earliest":
        return "earliest"
    return _place(word, "is neither latest nor earliest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def ending_place(text: str) -> Position:
    """Parse the end of a range: latest, a GTID position or a time."""
    return _place(text.strip(), "is neither latest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def start_of_log(text: str) -> Literal["latest", "earliest"] | GtidPosition:
    """Parse the start of a relay log: latest, earliest, or a GTID position.

    '' means the place before the very first transaction.
    """
    if not text.strip():
        return GtidPosition()
    match starting_place(text):
        case CommitTime() as time:
            raise ValueError(f"is a time: `mariadb-replica position --time {time}` prints its GTID position")
        case place:
            return place


def _place(word: str, expected: str) -> Position:
    if word.lower() == "latest":
        return "latest"
    if not word:
        raise ValueError("is empty; earliest starts at the oldest binlog")
    if foreign := foreign_position(word):
        raise ValueError(foreign)
    if ":" in word or _TIME.match(word):
        return CommitTime(instant(word))
    if _DATE.fullmatch(word):
        raise ValueError(f"may be a date or a GTID; write {word}T00:00:00Z for the date")
    try:
        return GtidPosition.parse(word)
    except ConfigError as error:
        raise ValueError(f"{expected} ({error.message})") from None
