"""The end of a reading up to the server's end, in the relay log: at its place, or where only that helps its position.

In: the end as it was asked for, by position and by place on one server. Out: its place in the log, once that has got
there. A position may name several places where sequence numbers went back: the reading would stop at the first of them,
with fewer rows than there were. The place names one. It is left for the position where the log is another server's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import OutOfOrderGtidError, RelayError
from replica.handshake.start.end import ServerEnd
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import ambiguous, covers, of_position
from replica.relay_log.files.file_head import read_file_head
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
    """Return the end of a log, as if its primary had been asked."""
    uid = origin_of(log, head.location).uid
    return ServerEnd(head.position, head.primary if head.location.offset and uid else None, uid)


def place_in_log(log: RelayLog, head: RelayHead, place: BinlogPosition) -> RelayHead | None:
    """Find the last group end up to a place of the primary's binlog; None before the log, whose head is `head`, has
    it.
    """
    if not head.location.offset or _order(head.primary) < _order(place):
        return head if place.position == FIRST_POSITION and _begins_behind(log, head, place.file) else None
    around = log.steadily(lambda: RelayGroups(log.directory).around(place))
    return None if around is None else around.before


def is_copy(feed: Feed, end: ServerEnd) -> bool:
    """Tell whether the log is a copy of the binlog that the place of `end` is one of."""
    head = feed.head().location
    return end.place is not None and (not head.offset or feed.origin(head).uid in (None, end.uid))


def found_end(feed: Feed, end: ServerEnd) -> RelayHead | None:
    """Return the place in the log, where it is a copy; None before it has got there."""
    if end.place is None:
        return None
    head = feed.head()
    found = place_in_log(feed.log, head, end.place)
    if found is None and head.location.offset and covers(head.position, end.position):
        # Behind its last group the server may have written a binlog checkpoint, which is in no log of ours.
        return head if feed.is_last(head.primary, end.uid) else None
    return found


def has_end(feed: Feed, end: ServerEnd) -> bool:
    """Tell whether the log holds everything up to the end."""
    return found_end(feed, end) is not None if is_copy(feed, end) else covers(feed.head().position, end.position)


def offset_of_end(feed: Feed, end: ServerEnd) -> SourceOffset:
    """Return the end of a log that has it, as an offset that names one place."""
    if not is_copy(feed, end):
        return SourceOffset(end.position, end.position)
    found = found_end(feed, end) or feed.head()  # a file without a group is gone when its replica has closed the log
    highest = tuple(sorted(of_position(found.position, feed.log.order().highest).items()))
    origin = feed.origin(found.location)
    return SourceOffset(
        found.position, found.position, found.primary, origin.server_id, uid=origin.uid, highest=highest
    )


def _begins_behind(log: RelayLog, head: RelayHead, file: str) -> bool:
    """Tell whether the primary's `file` has begun right behind the head: no group is in it, or between."""
    numbers = [number for number in relay_numbers(log.directory) if number >= head.location.file]
    for number in numbers:
        path = relay_path(log.directory, number)
        try:
            begun = read_file_head(path)
        except (FileNotFoundError, RelayError):
            return False  # a replica that starts removes it, or has not written all of its head
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
    """The end of one reading over a feed. Called by one thread."""

    def __init__(self, feed: Feed, places: RelayPlaces, end: ServerEnd) -> None:
        self._feed = feed
        self._places = places
        self._end = end

    def is_done(self, start: SourceOffset) -> bool:
        """Tell whether a reading that has got to `start`, in a log that leads through it, has come to the end."""
        end = self._end
        if self._by_place and start.primary is not None and start.uid == end.uid and end.place is not None:
            if is_behind(start.primary, end.place):
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
    def is_there(self) -> bool:
        """Whether the log has all that the reading is to read."""
        return has_end(self._feed, self._end)

    def goal(self, place: OffsetPlace) -> RelayLocation:
        """Return how far a batch from `place` may go: to the end, or to the head before that."""
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
        """Wait for the end; return the head before a transaction that must not be taken, if there is something up to
        it.
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


def is_behind(place: BinlogPosition, end: BinlogPosition) -> bool:
    """Tell whether a place of one server's binlog is at the end or behind it."""
    return _order(place) >= _order(end)


def _order(place: BinlogPosition) -> tuple[int, int]:
    """Order places of one server's binlog: file names grow a digit at a million."""
    number = place.file.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1, place.position
