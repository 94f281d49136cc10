"""The owner of a query's relay files: only this object lets the feed remove files, after it has asked all claims.

A claim is a function that returns the first place that its owner may read again. `KeptLog.release` removes files before
all claims. Each part of the query that keeps a place of the log from call to call needs a claim. The table reader has
one for waiting chunks, chunks that are being read, the next low watermark, and names that it follows. A batch and the
XA transactions that are prepared at its start are in the argument of `release`. Cascades, audits and batch reads have
separate relay logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.relay_log.location import RelayLocation


class Releases(Protocol):
    """The feed, which removes files."""

    def release(self, keep_from: RelayLocation) -> None:
        """Remove whole files before a place."""
        ...


class KeptLog:
    """The kept log of one query, called by one thread."""

    def __init__(self, feed: Releases) -> None:
        self._feed = feed
        self._claims: list[Callable[[], RelayLocation | None]] = []

    def claim(self, first: Callable[[], RelayLocation | None]) -> None:
        """Keep the log from the result of `first` at each release on. None means that nothing is needed now."""
        self._claims.append(first)

    def release(self, upto: RelayLocation) -> None:
        """Remove whole files before `upto`, which batches do not need, unless a claim needs them."""
        places = [place for first in self._claims if (place := first()) is not None]
        self._feed.release(min([upto, *places]))
