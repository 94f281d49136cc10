"""The newest plausible commit time of a stream.

The time of a commit comes from its session's clock, and `SET timestamp` can set it decades before or after the commit.
`NewestCommit.take` takes times in seconds since 1970, in the order of the stream, and returns the newest of them that
is not in the future. A commit is not older than an earlier one, so a lag that is measured from this time is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NewestCommit:
    """The newest commit time of one stream."""

    def __init__(self) -> None:
        self._newest: float | None = None

    def take(self, times: Iterable[float], now: float) -> float | None:
        """Add commit times, and return the newest one known; None if there is none.

        A time in the future counts as `now` and is not kept, because the clock of the server or of a session may be
        ahead.
        """
        told = list(times)
        past = [time for time in told if time <= now]
        if self._newest is not None:
            past.append(self._newest)
        self._newest = max(past, default=None)
        return now if any(time > now for time in told) else self._newest
