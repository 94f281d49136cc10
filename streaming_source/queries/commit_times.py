"""Newest commit time of a stream, as far as it can be one.

The time of a commit is what its session's clock says, and `SET timestamp` sets that: it may lie decades before the
commit, or behind it. In: times in seconds since 1970, in the order of the stream. Out: the newest of them that is not
in the future. A commit is not older than one before it, so that a lag counted from there is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NewestCommit:
    """One per stream; it remembers the newest time."""

    def __init__(self) -> None:
        self._newest: float | None = None

    def take(self, times: Iterable[float], now: float) -> float | None:
        """Take in commit times, and return the newest one known; None if there is none.

        A time in the future counts as `now`, and is forgotten: the server's clock may be ahead, or a session's.
        """
        told = list(times)
        past = [time for time in told if time <= now]
        if self._newest is not None:
            past.append(self._newest)
        self._newest = max(past, default=None)
        return now if any(time > now for time in told) else self._newest
