"""The place where a reading begins or ends, as people write it: a word, a GTID position, or a time.

In: the text of an option. Out: a `Position`, whose text is the canonical one. A time stands for the place before the
first transaction, in the order of the binlog, that was committed then or later: a reading that starts there has it,
one that ends there has not, so that [t1, t2) and [t2, t3) have no row in common. Refused with a ValueError whose words
go behind the text: what could mean two things, and places that are written as other programs write them.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Final, Literal, NamedTuple

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition, foreign_position

MAX_INSTANT: Final = 1 << 32
"""Events have 32 bits for their time."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DATE: Final = re.compile(r"(19|20|21)\d\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")
_TIME: Final = re.compile(r"\d{4}-?\d\d-?\d\d[Tt]")


class CommitTime(NamedTuple):
    """A time in seconds since 1970 (UTC)."""

    seconds: int

    def __str__(self) -> str:
        return shown_instant(self.seconds)


Position = Literal["latest", "earliest"] | GtidPosition | CommitTime


def instant(text: str) -> int:
    """Read an ISO 8601 time with its zone -> seconds since 1970 (UTC); parts of a second are rounded up.

    '2026-11-21T20:00:00Z', '2026-11-21 21:00+01:00'. Without a zone it would be the local time of a place, and no one
    here knows which: a ValueError, as for what is no time, or none that a binlog can hold (1970 to 2106).
    """
    try:
        parsed = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("is not a time such as 2026-11-21T20:00:00Z") from None
    if parsed.tzinfo is None:
        raise ValueError("does not say in which time zone; put Z (UTC) or an offset such as +01:00 behind it")
    seconds = math.ceil((parsed - _EPOCH).total_seconds())
    if not 0 <= seconds < MAX_INSTANT:
        raise ValueError("is outside 1970 to 2106, what a binlog can hold")
    return seconds


def shown_instant(seconds: int) -> str:
    """Write seconds since 1970 as `instant` reads them, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def starting_place(text: str) -> Position:
    """Read where a stream starts: latest, earliest, a GTID position or a time."""
    word = text.strip()
    if word.lower() == "earliest":
        return "earliest"
    return _place(word, "is neither latest nor earliest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def ending_place(text: str) -> Position:
    """Read where a reading ends: latest, a GTID position or a time."""
    return _place(text.strip(), "is neither latest nor a time nor a GTID position such as 0-1-4711,1-2-9")


def start_of_log(text: str) -> Literal["latest", "earliest"] | GtidPosition:
    """Read where a relay log starts: latest, earliest, or a GTID position; '' is the very first transaction of all."""
    if not text.strip():
        return GtidPosition()
    match starting_place(text):
        case CommitTime() as time:
            raise ValueError(f"is a time: `mariadb-replica position --time {time}` tells the GTID position of it")
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
