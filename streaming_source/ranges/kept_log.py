"""The one owner of the relay files of a query: it alone has the feed remove some, and asks all claims before.

In: claims, each a function that returns the first place that its owner may read again. Out: the feed removes files
before all of them. A part of the query that keeps a place of the log from call to call has a claim: the reading of
tables (chunks that wait, chunks that are being read, the next lower position, names that are followed). A batch and the
XA transactions that are prepared at its start are the argument of `release`. Cascades, audits and batch reads have
relay logs of their own.
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
    """One per query, called by one thread."""

    def __init__(self, feed: Releases) -> None:
        self._feed = feed
        self._claims: list[Callable[[], RelayLocation | None]] = []

    def claim(self, first: Callable[[], RelayLocation | None]) -> None:
        """Keep the log from what `first` returns at each release; None: nothing is needed now."""
        self._claims.append(first)

    def release(self, upto: RelayLocation) -> None:
        """Remove whole files before `upto`, before which batches need nothing, if no claim needs them."""
        places = [place for first in self._claims if (place := first()) is not None]
        self._feed.release(min([upto, *places]))
