"""Places of offsets in the relay log, including places that the log does not have.

`RelayPlaces` returns `OffsetPlace`s. An offset that the replica has just reached is a place of the log. After a restart
the log may be deleted, trimmed, or fetched from another server. Then the replica starts again at the offset where the
batch starts. (A query does not change a daemon's log, so a missing place in it is an error.) A server may order domains
differently from the server of the offset. Then no place is the end of the batch. In that case, the range extends to the
place at which every domain has reached the offset, and the surplus is cut off by sequence number in each domain.

While XA transactions are prepared, `resume` of an offset is where their groups begin, and its place lists them. The log
is kept from there, and a replica that has lost its log starts there.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from replica.errors import AmbiguousPositionError, DataLossError, RelayError
from replica.protocol.gtid import ambiguous, covers, of_position
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_log.walks.xa import Prepared, follow
from replica.rows.scan.xa import describe
from streaming_source.offsets.offset import SourceOffset

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.errors import RelayFileRemovedError
    from replica.handshake.start.start import Latest, ServerEnd
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.xa import PreparedGroup
    from streaming_source.offsets.data_loss import Losses
    from streaming_source.ranges.cutting import Origin

    _Key = tuple[GtidPosition, BinlogPosition | None]
# A claim is a function that returns the first place that its owner may read again. `KeptLog.release` removes files
# before all claims. Each part of the query that keeps a place of the log from call to call needs a claim. The table
# reader has one for waiting chunks, chunks that are being read, the next low watermark, and names that it follows. A
# batch and the XA transactions that are prepared at its start are in the argument of `release`. Cascades, audits and
# batch reads have separate relay logs.


class Releases(Protocol):
    """Feed that can remove files."""

    def release(self, keep_from: RelayLocation) -> None:
        """Remove whole files before a place."""
        ...


class KeptLog:
    """Kept log of one query. Only one thread calls it."""

    def __init__(self, feed: Releases) -> None:
        self._feed = feed
        self._claims: list[Callable[[], RelayLocation | None]] = []

    def claim(self, first: Callable[[], RelayLocation | None]) -> None:
        """Keep the log, at each later release, from the place that `first` returns.

        None: the caller needs nothing now.
        """
        self._claims.append(first)

    def release(self, upto: RelayLocation) -> None:
        """Remove whole files before `upto`, which batches do not need, unless a claim needs them."""
        places = [place for first in self._claims if (place := first()) is not None]
        self._feed.release(min([upto, *places]))


LONG_POLL_S = 0.25
"""Seconds that Spark waits for an answer. Without the wait, Spark would ask 90 times a second. Sources in a join wait
for each other.
"""
PLACES_KEPT = 16
"""Most places to keep. Spark asks for the last two offsets, and for more only while batches are planned ahead."""


class Feed(Protocol):
    """Operations of a replica that planning needs: the query's own replica, or a daemon's relay log.

    Every call raises the fatal error of the replica.
    """

    @property
    def log(self) -> RelayLog: ...

    @property
    def started(self) -> bool: ...

    @property
    def full(self) -> bool:
        """Whether the log has reached its size limit, so that receiving waits until files are purged."""
        ...

    @property
    def epoch(self) -> object:
        """Value that changes when the log's writer starts again.

        Earlier locations may then be those of other groups.
        """
        ...

    @property
    def down_s(self) -> float:
        """Seconds for which no process has written the log; 0 while a process writes it."""
        ...

    def starting_offset(self) -> SourceOffset:
        """Resolve the option startingPosition to an offset with the anchor mark."""
        ...

    def start(self, offset: SourceOffset) -> SourceOffset:
        """Make the relay log hold everything after `offset.resume`, by reusing it or fetching it again.

        Returns:
            The offset from which the log continues. It differs from `offset` only if the query skips purged
            transactions (failOnDataLoss=false).
        """
        ...

    @property
    def losses(self) -> Losses:
        """Transactions that the query has skipped."""
        ...

    def release(self, keep_from: RelayLocation) -> None:
        """Release whole files before `keep_from`.

        Only `KeptLog` calls this, because it knows which parts of the query still need files.
        """
        ...

    def restart_after(self, error: RelayFileRemovedError) -> None:
        """Find the place of the query again after a needed file was removed. `epoch` changes.

        A query's own replica fetches missing groups. Other feeds raise `error` if the groups cannot be fetched again.
        """
        ...

    def head(self) -> RelayHead: ...

    def wait_beyond(self, location: RelayLocation, timeout_s: float) -> bool: ...

    def server_end(self) -> ServerEnd:
        """Return the end of the primary's binlog now, or of a daemon's log."""
        ...

    def is_last(self, place: BinlogPosition, uid: str | None) -> bool:
        """Return True if the primary is server `uid` and has no group after a place."""
        ...

    def latest_and_prepared(self) -> Latest | None:
        """Return the end of the primary's binlog and the XA transactions prepared there; None without a server."""
        ...

    def origin(self, location: RelayLocation) -> Origin: ...

    @property
    def spool(self) -> Path:
        """Folder for snapshot rows, which tasks can read. It need not exist."""
        ...

    def close(self) -> None: ...


class OffsetPlace(NamedTuple):
    """Place of an offset in the relay log.

    The two places are usually the same.

    Attributes:
        reached: a place after all groups of the offset.
        scan_from: a place before which all groups belong to the offset.
        prepared: the XA transactions that are open at `scan_from`.
    """

    scan_from: RelayLocation
    reached: RelayLocation
    prepared: Prepared = ()

    @classmethod
    def exactly(cls, location: RelayLocation, prepared: Prepared = ()) -> Self:
        return cls(location, location, prepared)

    @property
    def holds_files(self) -> bool:
        """Whether a transaction that stays prepared keeps whole files in the log."""
        return self.keep_from.file < self.scan_from.file

    @property
    def keep_from(self) -> RelayLocation:
        """First group that is still needed."""
        return min(self.scan_from, *(group.location for group in self.prepared)) if self.prepared else self.scan_from

    @property
    def exact(self) -> bool:
        return self.scan_from == self.reached


def bytes_between(log: RelayLog, start: RelayLocation, end: RelayLocation) -> int:
    """Return the relay bytes from one place to a later one. A file that was purged meanwhile counts as 0 bytes."""
    sizes = {}
    for number in range(start.file, end.file):
        with contextlib.suppress(FileNotFoundError):
            sizes[number] = relay_path(log.directory, number).stat().st_size
    return max(0, sum(sizes.values()) - start.offset + end.offset)


class RelayPlaces:
    """Places of the last offsets. Recent places are cached, older ones are found in the log."""

    def __init__(self, feed: Feed, kept: KeptLog | None = None) -> None:
        self._feed = feed
        self._kept = kept or KeptLog(feed)
        self._places: OrderedDict[_Key, OffsetPlace] = OrderedDict()
        self._epoch = feed.epoch

    def remember(self, offset: SourceOffset, place: OffsetPlace) -> None:
        key = offset.position, offset.primary
        self._places[key] = place
        self._places.move_to_end(key)
        while len(self._places) > PLACES_KEPT:
            self._places.popitem(last=False)

    def forget(self, forgotten: frozenset[PreparedGroup]) -> None:
        """Drop transactions that are not open any more from all places."""
        for key, place in self._places.items():
            prepared = tuple(group for group in place.prepared if group not in forgotten)
            self._places[key] = place._replace(prepared=prepared)

    def known(self, offset: SourceOffset) -> OffsetPlace | None:
        if self._feed.epoch != self._epoch:
            self._epoch = self._feed.epoch
            self._places.clear()
        return self._places.get((offset.position, offset.primary))

    def of_start(self, offset: SourceOffset) -> OffsetPlace:
        """Return the place at which a batch from `offset` begins. Start the replica there if needed.

        Raises:
            DataLossError: the log of a running replica does not lead through `offset`.
        """
        place = self.known(offset)
        if place is not None:
            return place
        begin = offset if self._feed.started else self._feed.start(offset)
        resume = self._feed.log.locate(begin.resume, begin.resume_primary)
        if resume is None:
            raise DataLossError(
                f"the relay log does not contain the position {begin.resume}.",
                hint="Another program changed it. Restart the query: its own replica, if it has one, fetches the "
                "range again.",
            )
        place = OffsetPlace.exactly(resume)
        if begin.resume != begin.position:
            place = self.arrived(begin.position, place, begin)
        self.remember(offset, place)
        return place

    def of_end(self, offset: SourceOffset, start: OffsetPlace) -> OffsetPlace:
        """Return the place at which a batch up to `offset` ends, after waiting until the replica has reached it."""
        self._refuse_another_server(offset)
        place = self.known(offset) or self.arrived(offset.position, start, offset)
        if place.reached < start.reached:
            raise DataLossError(
                f"the batch up to {offset.position} ends before it starts.",
                hint="The checkpoint was edited, or belongs to another server: start a new one.",
            )
        self.remember(offset, place)
        return place

    def _refuse_another_server(self, offset: SourceOffset) -> None:
        """Raise an error if sequence numbers went back and this is another server.

        A batch then ends at a place of one server's binlog.
        """
        head = self._feed.head()
        if not (offset.highest and head.location.offset):
            return
        here = self._feed.origin(head.location)
        ids = (offset.server_id, here.server_id) if None in (offset.uid, here.uid) else (offset.uid, here.uid)
        if None not in ids and ids[0] != ids[1]:
            raise AmbiguousPositionError(
                f"the batch up to {offset.position} ends at {offset.primary} of server {offset.server_id}, because "
                f"several places have that position. The relay log comes from server {here.server_id}.",
                hint="Connect to the server that the batch was read from, to repeat it.",
            )

    def arrived(self, position: GtidPosition, start: OffsetPlace, offset: SourceOffset | None = None) -> OffsetPlace:
        """Wait for a position after `start`, and return its place.

        `offset`, if given, is the offset of the position, and identifies one of several places.

        Raises:
            AmbiguousPositionError: several places have the position, and the log cannot identify one.
        """
        while True:
            head = self._feed.head()
            location = self._feed.log.locate(position, offset.primary if offset is not None else None)
            if location is not None:
                return OffsetPlace.exactly(location, self.prepared_at(location, start))
            several = (offset is not None and offset.highest) or ambiguous(position, self._feed.log.order().highest)
            if covers(head.position, position) and not several:
                return start._replace(reached=self._covering(position, start.scan_from, head))
            if not self._feed.wait_beyond(head.location, LONG_POLL_S) and self._feed.full:
                self.make_room(start, position)

    def head_at(self, place: OffsetPlace) -> RelayHead:
        """Return a place as a head of the log, at most the end of the log."""
        head = self._feed.head()
        return head if place.reached >= head.location else self._feed.log.at(place.reached)

    def prepared_at(self, location: RelayLocation, start: OffsetPlace) -> Prepared:
        """Return the XA transactions that are open at a place after `start`."""
        return follow(self._feed.log, [(start.scan_from, location)], start.prepared)[1]

    def check_room(self, place: OffsetPlace) -> None:
        """Raise an error if the log is full and stays full, because of a transaction that stays prepared.

        Raises:
            RelayError: the message names the transaction and the option.
        """
        if place.holds_files and self._feed.full:
            raise RelayError(
                "the relay log is full (relayMaxBytes), and cannot be trimmed: the XA transaction "
                f"{describe(place.prepared[0].xid)} has been prepared since {place.keep_from} and is not ended.",
                hint="End it (XA RECOVER lists it), and raise relayMaxBytes so that its end can be received.",
            )

    def make_room(self, start: OffsetPlace, position: GtidPosition) -> None:
        self._kept.release(start.keep_from)
        if self._feed.full:
            raise RelayError(
                f"the relay log is full (relayMaxBytes) from {start.keep_from} on, and has not reached {position}.",
                hint="Raise relayMaxBytes.",
            )

    def _covering(self, position: GtidPosition, start: RelayLocation, head: RelayHead) -> RelayLocation:
        """Return the first group end at which every domain has reached `position`.

        The search is a bisection over the bytes of [start, head].
        """
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

    def offset_at(self, head: RelayHead, prepared: Prepared = ()) -> SourceOffset:
        """Return the offset of a place of the log at which these XA transactions are open."""
        if not head.location.offset:  # no group yet
            return SourceOffset(head.position, head.position)
        resume = self._feed.log.at(prepared[0].location).position if prepared else head.position
        highest = tuple(sorted(of_position((*head.position, *resume), self._feed.log.order().highest).items()))
        server_id, uid, last = self._feed.origin(head.location)
        return SourceOffset(head.position, resume, head.primary, server_id, uid=uid, last=last, highest=highest)
