"""Where an offset lies in the relay log, and what to do when the log has no such place.

In: offsets. Out: `Place`s. An offset the replica has just reached is a place of the log by construction. After a
restart the log may be gone, trimmed, or fetched from another server; then the replica starts again at the offset where
the batch starts. A server may interleave domains in another order than the one the offset comes from, and then the end
of the batch is no place at all: the range is taken up to where every domain has reached it, and the surplus is cut off
per domain by sequence number.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from replica.errors import DataLossError
from replica.relay.location import RelayLocation, relay_path
from streaming_source.offset import SourceOffset

if TYPE_CHECKING:
    from replica.protocol.gtid import GtidPosition
    from replica.relay.location import RelayHead
    from replica.relay.log import RelayLog

LONG_POLL_S = 0.25
"""How long Spark waits for an answer. Without, it asks 90 times a second; sources in a join wait for each other."""
PLACES_KEPT = 16
"""Spark asks about the last two offsets; more only while batches are planned ahead."""


class Feed(Protocol):
    """What planning needs of the replica (feed.py is the real one). Every call raises the replica's fatal error."""

    @property
    def log(self) -> RelayLog: ...

    @property
    def started(self) -> bool: ...

    def starting_offset(self) -> SourceOffset:
        """The option startingPosition made definite, with the anchor mark; asks the primary."""
        ...

    def start(self, offset: SourceOffset) -> None:
        """Make the relay log hold everything after `offset.resume`, by reusing it or by fetching it again."""
        ...

    def head(self) -> RelayHead: ...

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool: ...

    def server_position(self) -> GtidPosition: ...

    def server_id(self, location: RelayLocation) -> int | None: ...

    def close(self) -> None: ...


class Place(NamedTuple):
    """All groups of an offset lie before `reached`; all groups before `scan_from` are its. Mostly the two are one."""

    scan_from: RelayLocation
    reached: RelayLocation

    @classmethod
    def exactly(cls, location: RelayLocation) -> Self:
        return cls(location, location)

    @property
    def exact(self) -> bool:
        return self.scan_from == self.reached


def covers(position: GtidPosition, other: GtidPosition) -> bool:
    """Whether `position` has reached `other` in every domain, by sequence number."""
    return all((mine := position.get(gtid.domain_id)) is not None and mine.seq_no >= gtid.seq_no for gtid in other)


def bytes_between(log: RelayLog, start: RelayLocation, end: RelayLocation) -> int:
    """Relay bytes from one place to a later one; a file that was purged meanwhile counts nothing."""
    sizes = {}
    for number in range(start.file, end.file):
        with contextlib.suppress(FileNotFoundError):
            sizes[number] = relay_path(log.directory, number).stat().st_size
    return max(0, sum(sizes.values()) - start.offset + end.offset)


class RelayPlaces:
    """Remembers the places of the last offsets and looks up the others."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._places: OrderedDict[GtidPosition, Place] = OrderedDict()

    def remember(self, offset: SourceOffset, place: Place) -> None:
        self._places[offset.position] = place
        self._places.move_to_end(offset.position)
        while len(self._places) > PLACES_KEPT:
            self._places.popitem(last=False)

    def known(self, offset: SourceOffset) -> Place | None:
        return self._places.get(offset.position)

    def of_start(self, offset: SourceOffset) -> Place:
        """Where a batch that starts at `offset` begins; starts the replica there if need be.

        Raises:
            DataLossError: the log of a running replica does not lead through `offset`.

        """
        place = self.known(offset)
        if place is not None:
            return place
        if not self._feed.started:
            self._feed.start(offset)
        location = self._feed.log.locate(offset.position)
        if location is None:
            raise DataLossError(
                f"the relay log does not lead through {offset.position}.",
                hint="It was changed by someone else. Restart the query: it fetches the range again from the primary.",
            )
        self.remember(offset, Place.exactly(location))
        return Place.exactly(location)

    def of_end(self, offset: SourceOffset, start: Place) -> Place:
        """Where a batch that ends at `offset` ends; waits until the replica has got there."""
        place = self.known(offset)
        while place is None:
            head = self._feed.head()
            location = self._feed.log.locate(offset.position)
            if location is not None:
                place = Place.exactly(location)
            elif covers(head.position, offset.position):
                place = Place(start.scan_from, self._covering(offset.position, start.scan_from, head))
            else:
                self._feed.wait_beyond(head.location, LONG_POLL_S)
        if place.reached < start.reached:
            raise DataLossError(
                f"the batch up to {offset.position} ends before it starts.",
                hint="The checkpoint was edited, or belongs to another server: start a new one.",
            )
        self.remember(offset, place)
        return place

    def _covering(self, position: GtidPosition, start: RelayLocation, head: RelayHead) -> RelayLocation:
        """The first group end where every domain has reached `position`: halving over the bytes of [start, head]."""
        log = self._feed.log
        low, high, found = 0, bytes_between(log, start, head.location), head.location
        while low < high:
            middle = (low + high) // 2
            cut = log.cut(start, head.location, middle)
            if covers(cut.position, position):
                high, found = middle, min(found, cut.location)
            else:
                low = middle + 1
        return found

    def offset_at(self, head: RelayHead) -> SourceOffset:
        """The offset of a place of the log."""
        if not head.location.offset:  # no group yet
            return SourceOffset(head.position, head.position)
        return SourceOffset(head.position, head.position, head.primary, self._feed.server_id(head.location))
