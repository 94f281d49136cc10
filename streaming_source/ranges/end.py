"""End of a read up to the server's end, as a place in the relay log.

`ReadingEnd` takes the end by position and by place on one server, and finds it in the log once the log has it. The
place is used if the log comes from this server, because a place is unique. If sequence numbers went back, several
places may have one position, and a read by position would stop at the first of them, with too few rows. The position is
used if the log comes from another server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import OutOfOrderGtidError, RelayError
from replica.handshake.start.start import ServerEnd
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import ambiguous, covers, of_position
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.location import relay_numbers, relay_path
from streaming_source.offsets.offset import SourceOffset
from streaming_source.ranges.cutting import origin_of
from streaming_source.ranges.places import LONG_POLL_S

if TYPE_CHECKING:
    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from streaming_source.ranges.places import Feed, OffsetPlace, RelayPlaces


def end_of_log(log: RelayLog, head: RelayHead) -> ServerEnd:
    """Return the end of a log, in the form of a primary's answer."""
    uid = origin_of(log, head.location).uid
    return ServerEnd(head.position, head.primary if head.location.offset and uid else None, uid)


def place_in_log(log: RelayLog, head: RelayHead, place: BinlogPosition) -> RelayHead | None:
    """Return the last group end up to a place of the primary's binlog; None if the log lacks the place.

    `head` is the head of the log.
    """
    if not head.location.offset or _order(head.primary) < _order(place):
        return head if place.position == FIRST_POSITION and _begins_after(log, head, place.file) else None
    around = log.steadily(lambda: RelayGroups(log.directory).around(place))
    return None if around is None else around.before


def is_copy(feed: Feed, end: ServerEnd) -> bool:
    """Return True if the log is a copy of the binlog to which the place of `end` belongs."""
    head = feed.head().location
    return end.place is not None and (not head.offset or feed.origin(head).uid in (None, end.uid))


def found_end(feed: Feed, end: ServerEnd) -> RelayHead | None:
    """Return the place in the log if the log is a copy; None if it has not reached the end yet."""
    if end.place is None:
        return None
    head = feed.head()
    found = place_in_log(feed.log, head, end.place)
    if found is None and head.location.offset and covers(head.position, end.position):
        # After its last group, the server may have written a binlog checkpoint, which relay logs do not have.
        return head if feed.is_last(head.primary, end.uid) else None
    return found


def has_end(feed: Feed, end: ServerEnd) -> bool:
    """Return True if the log has everything up to the end."""
    return found_end(feed, end) is not None if is_copy(feed, end) else covers(feed.head().position, end.position)


def offset_of_end(feed: Feed, end: ServerEnd) -> SourceOffset:
    """Return `end`, which the log has, as an offset that names one place."""
    if not is_copy(feed, end):
        return SourceOffset(end.position, end.position)
    found = found_end(feed, end) or feed.head()  # a closed replica removes a file without groups
    highest = tuple(sorted(of_position(found.position, feed.log.order().highest).items()))
    origin = feed.origin(found.location)
    return SourceOffset(
        found.position, found.position, found.primary, origin.server_id, uid=origin.uid, highest=highest
    )


def _begins_after(log: RelayLog, head: RelayHead, file: str) -> bool:
    """Return True if the primary's `file` has begun right after the head, without a group in it or in between."""
    numbers = [number for number in relay_numbers(log.directory) if number >= head.location.file]
    for number in numbers:
        path = relay_path(log.directory, number)
        try:
            begun = read_file_head(path)
        except (FileNotFoundError, RelayError):
            return False  # a starting replica removes it, or has not written its whole head
        if number > head.location.file or not head.location.offset:
            if begun.primary.file == file:
                return True
            end = begun.data_start
        else:
            end = head.location.offset
        if path.stat().st_size > end:
            return False
    return False


class ReadingEnd:
    """End of one read over a feed. Only one thread calls it."""

    def __init__(self, feed: Feed, places: RelayPlaces, end: ServerEnd) -> None:
        self._feed = feed
        self._places = places
        self._end = end

    def is_done(self, start: SourceOffset) -> bool:
        """Return True if a read that has reached `start` is at the end. The log has to lead through `start`."""
        end = self._end
        if self._by_place and start.primary is not None and start.uid == end.uid and end.place is not None:
            if is_at_or_after(start.primary, end.place):
                return True
            found = self._found()
            reached = self._places.of_start(start).reached
            return found is not None and (reached >= found or self._feed.log.is_empty(reached, found))
        if not covers(start.position, end.position):
            return False
        if self._several:
            last = self._feed.log.last_place(end.position)
            return last is not None and self._places.of_start(start).reached >= last
        return True

    @property
    def is_reached(self) -> bool:
        """Whether the log has everything that the read needs."""
        return has_end(self._feed, self._end)

    def goal(self, place: OffsetPlace) -> RelayLocation:
        """Return the place that a batch from `place` may reach: the end, or the head if that is earlier."""
        head, end = self._feed.head(), self._end
        if self._by_place:
            found = self._found()
            return head.location if found is None else min(found, head.location)
        if not covers(head.position, end.position):
            return head.location
        if self._several:
            return self._feed.log.last_place(end.position) or head.location
        return min(head.location, self._places.arrived(end.position, place).reached)

    def arrived(self, place: OffsetPlace) -> RelayLocation:
        """Wait for the end, and return it.

        If a transaction is out of order and there are groups before it, return the place before this transaction.
        """
        while self._by_place:
            head = self._feed.head().location
            found = self._found()
            if found is not None:
                return found
            try:
                news = self._feed.wait_beyond(head, LONG_POLL_S)
            except OutOfOrderGtidError:
                head = self._feed.head().location
                if head <= place.reached or self._feed.log.is_empty(place.reached, head):
                    raise
                return head
            if not news and self._feed.full:
                self._places.make_room(place, self._end.position)
        return self._places.arrived(self._end.position, place).reached

    @property
    def _several(self) -> bool:
        return bool(ambiguous(self._end.position, self._feed.log.order().highest))

    @property
    def _by_place(self) -> bool:
        return is_copy(self._feed, self._end)

    def _found(self) -> RelayLocation | None:
        found = found_end(self._feed, self._end)
        return None if found is None else found.location


def is_at_or_after(place: BinlogPosition, end: BinlogPosition) -> bool:
    """Return True if a place of one server's binlog is at the end or after it."""
    return _order(place) >= _order(end)


def _order(place: BinlogPosition) -> tuple[int, int]:
    """Return the sort key of places in one server's binlog. File names get another digit at a million."""
    number = place.file.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1, place.position
