"""Read side of a relay directory: map positions to locations, limit batches, and cut byte ranges for tasks.

`RelayLog` works beside a writer in this or another process, and without a writer. It reads only committed groups:
callers take the ends of ranges from `head` or from locations that this module returned. A call reads at most the index
files that a binary search needs and 64 KB of a relay file, whatever the length of the log.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from replica.errors import AmbiguousPositionError, DataLossError, RelayError
from replica.protocol.gtid import ambiguous
from replica.relay_log.files.lookup import RelayFiles, SealedFiles, purged, remove_oldest
from replica.relay_log.files.scan import end_gtids, group_ends, head_at
from replica.relay_log.groups.groups import RelayGroups
from replica.relay_log.groups.order import PLACES_NAMED, first_out_of_order, places_of, read_order, refuse_repeated
from replica.relay_log.kernels.kernel_deframe import INDEX_EVERY_BYTES
from replica.relay_log.location import RelayHead, RelayLocation, relay_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.native.record import Records
    from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
    from replica.relay_log.groups.groups import LogGroup
    from replica.relay_log.groups.order import LogOrder

_Result = TypeVar("_Result")

_ALL = 1 << 62
XA_BYTES = 8 << 20  # bytes per scan if every other group is an XA group


class RelayRange(NamedTuple):
    """Whole event groups: bytes [start, end) of a relay file.

    With `checksum`, each event ends with a CRC32.
    """

    path: str
    start: int
    end: int
    checksum: bool


class RelayLog:
    """Relay log of one directory. Thread-safe; every call looks up the files again."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._lock = threading.Lock()
        self._files = RelayFiles(self.directory)
        self._sealed = SealedFiles(self.directory)

    def head(self) -> RelayHead | None:
        """Return the end of the last complete group; None if no replica has written."""
        return self._files.published()

    def first_position(self) -> GtidPosition | None:
        """Return the start position of the oldest file, the earliest that `locate` can find; None without a file."""
        return self.steadily(self._first_position)

    def oldest(self) -> RelayLocation:
        """Return the start of the oldest file, or of the next file if there is none."""
        with self._lock:
            numbers, head = self._files.numbers(), self._files.published()
        if numbers:
            return RelayLocation(numbers.start, 0)
        return RelayLocation(1 if head is None else head.location.file, 0)

    def steadily(self, search: Callable[[], _Result]) -> _Result:
        """Return the result of `search`, and repeat it if a file was removed meanwhile.

        A binary search over the files may meet a removed file although the searched location still exists.
        """
        while True:
            before = self.oldest()
            try:
                return search()
            except (DataLossError, RelayError, FileNotFoundError):  # raised for the head, the index or the file itself
                if self.oldest() <= before:
                    raise

    def order(self) -> LogOrder:
        """Return where sequence numbers went back."""
        return read_order(self.directory)

    def locate(self, position: GtidPosition, place: BinlogPosition | None = None) -> RelayLocation | None:
        """Return the location after exactly the groups of `position`; None if this log has no such location.

        After a failover, domains may interleave in another order. A position of the old server may then be no location
        of this log, although the log contains all of its groups. If a position is `ambiguous`, `place` on the primary
        selects one of its locations.

        Raises:
            AmbiguousPositionError: The position names several locations, and `place` is None.
        """
        order = self.order()
        if ambiguous(position, order.highest):
            return self.steadily(lambda: self._locate_gtid(position, place, order))
        return self.steadily(lambda: self._locate(position))

    def refuse_repeated(self, gtid: Gtid) -> None:
        """Raise AmbiguousPositionError if the log contains more than one transaction with the GTID."""
        if ambiguous((gtid,), self.order().highest):
            self.steadily(lambda: refuse_repeated(RelayGroups(self.directory), gtid))

    def last_place(self, position: GtidPosition) -> RelayLocation | None:
        """Return the last location of a position."""
        found = self.steadily(lambda: list(places_of(RelayGroups(self.directory), position)))
        return found[-1].location if found else None

    def is_empty(self, start: RelayLocation, end: RelayLocation) -> bool:
        """Return True if no group lies between two locations, which may be two names of one place."""
        with self._lock:
            return next(self._stretches(start, end), None) is None

    def first_out_of_order(self, start: RelayLocation, end: RelayLocation) -> tuple[LogGroup, Gtid] | None:
        """Return the first group between two locations whose number is not above the previous one of its domain.

        The second value is that previous GTID.
        """
        if not self.order().highest:
            return None
        return self.steadily(lambda: first_out_of_order(RelayGroups(self.directory), start, end))

    def _locate_gtid(
        self, position: GtidPosition, place: BinlogPosition | None, order: LogOrder
    ) -> RelayLocation | None:
        found = list(places_of(RelayGroups(self.directory), position))
        head = self.head()
        if not found and head is not None and head.position == position:
            found = [head]  # a log without a group
        if place is not None:
            return next((one.location for one in found if _is_at(one, place, order)), None)
        if len(found) > 1:
            named = ", ".join(str(one.primary) for one in found[:PLACES_NAMED])
            more = f" and {len(found) - PLACES_NAMED} more" if len(found) > PLACES_NAMED else ""
            raise AmbiguousPositionError(
                f"the position {position} matches {len(found)} places in the relay log {self.directory}, because "
                f"sequence numbers went back: {named}{more} of the primary's binlog.",
                hint="Name a position with a number above those, or one before they went back.",
            )
        return found[0].location if found else None

    def _first_position(self) -> GtidPosition | None:
        with self._lock:
            numbers = self._files.numbers()
            return self._files.head(numbers[0]).position if numbers else None

    def _locate(self, position: GtidPosition) -> RelayLocation | None:
        with self._lock:
            head = self.head()
            if head is not None and head.position == position:
                return head.location
            numbers = self._files.numbers()
            later = bisect_right(numbers, 0, key=lambda n: int(not self._files.starts_by(n, position)))
            found = self._locate_in(numbers[later - 1], position) if later else None
            return found or self._search(numbers, position)

    def cut(self, start: RelayLocation, end: RelayLocation, max_bytes: int) -> RelayHead:
        """Return the last group end at most `max_bytes` after `start`, and not after `end`.

        The result is at least one group after `start`, even if that group is larger.

        Raises:
            DataLossError: Groups after `start` were purged.
        """
        with self._lock:
            left = max_bytes
            last: RelayHead | None = None
            for number, begin, limit in self._stretches(start, end):
                found = self._last_end(number, begin, min(limit, begin + left))
                if found is None and last is None:
                    found = self._first_end(number, begin, limit)
                if found is None:
                    break
                last = found
                left -= found.location.offset - begin
                if left <= 0 or found.location.offset < limit:
                    break
            if last is None:
                return self._at(end)
            return last

    def ranges(self, start: RelayLocation, end: RelayLocation, target_bytes: int) -> list[RelayRange]:
        """Divide [start, end) into ranges of whole groups in order, about `target_bytes` each.

        A larger group has its own range.
        """
        ranges = []
        with self._lock:
            for number, first, limit in self._stretches(start, end):
                begin = first
                path, checksum = str(relay_path(self.directory, number)), self._files.head(number).checksum
                index = self._files.index(number)
                while begin < limit:
                    entry = index.at_or_after(begin + target_bytes)
                    stop = min(entry.end, limit) if entry else limit
                    if stop - begin > target_bytes + INDEX_EVERY_BYTES:
                        large = max(begin, self._last_group(number, stop))
                        if large > begin:
                            ranges.append(RelayRange(path, begin, large, checksum))
                        ranges.append(RelayRange(path, large, stop, checksum))
                    else:
                        if limit - stop < target_bytes // 4:
                            stop = limit  # a task costs more than a few groups, so no tiny range remains
                        ranges.append(RelayRange(path, begin, stop, checksum))
                    begin = stop
        return ranges

    def group_end(self, place: RelayLocation) -> RelayLocation | None:
        """Return a location as a group end: the start of a file becomes the end of the previous file.

        Return None if the log has no group before the location.
        """
        with self._lock:
            return self._group_end(place)

    def last_group(self, end: RelayLocation) -> RelayLocation:
        """Return the start of the group that ends at `end`, which is a group end or the start of the next file.

        Raises:
            RelayFileRemovedError: The log does not contain that group.
        """
        with self._lock:
            place = self._group_end(end)
            if place is None:
                raise purged(end.file - 1)
            return RelayLocation(place.file, self._last_group(place.file, place.offset))

    def xa_stretches(self, start: RelayLocation, end: RelayLocation) -> Iterator[tuple[int, RelayRange]]:
        """Yield the parts of [start, end) in which groups prepare or end XA transactions, each with its file number.

        The parts are in order and follow the marks in the index files. They contain whole groups, other groups between
        them, and about XA_BYTES or one larger group.
        """
        with self._lock:
            stretches = [
                stretch
                for number in self._files.not_plain(start.file, end.file)
                for stretch in self._stretches(
                    max(start, RelayLocation(number, 0)), min(end, RelayLocation(number, _ALL))
                )
            ]
        for number, begin, limit in stretches:
            with self._lock:
                path, checksum = str(relay_path(self.directory, number)), self._files.head(number).checksum
                marks = self._files.index(number).xa_marks(begin, limit, XA_BYTES)
            for first, last in marks:
                yield number, RelayRange(path, first, last, checksum)

    def at(self, location: RelayLocation) -> RelayHead:
        """Return the `RelayHead` of a group end, or of the start of a file's groups."""
        with self._lock:
            numbers = self._files.numbers()
            if numbers and location.file < numbers.start:
                raise purged(location.file)
            head = self._files.published()
            if head is not None and head.location == location:
                return head  # its file may not exist yet
            begin = self._files.head(location.file).data_start
            found = self._last_end(location.file, begin, location.offset) if location.offset > begin else None
            return found or self._files.base(location.file, None)

    def purge_before(self, location: RelayLocation) -> int:
        """Remove all files before the file of `location`; return their number."""
        with self._lock:
            numbers = self._files.numbers()
            numbers = range(numbers.start, min(numbers.stop, location.file))
            remove_oldest(self.directory, numbers)
            return len(numbers)

    def total_bytes(self) -> int:
        with self._lock:
            numbers = self._files.numbers()
            if not numbers:
                return 0
            self._sealed.extend(numbers[-1] - 1)
            return self._sealed.total()[1] + self._files.size(numbers[-1])

    def _stretches(self, start: RelayLocation, end: RelayLocation) -> Iterator[tuple[int, int, int]]:
        """Yield (file, begin, end) of the groups between two locations, file by file."""
        if start >= end:
            return
        files = self._files
        numbers = files.numbers()
        if not numbers or start.file < numbers[0]:
            raise purged(start.file)
        for number in range(start.file, min(end.file + 1, numbers.stop)):
            data_start = files.head(number).data_start
            begin = max(start.offset, data_start) if number == start.file else data_start
            limit = min(end.offset, files.end_of(number)) if number == end.file else files.end_of(number)
            if begin < limit:
                yield number, begin, limit

    def _ends_after(self, base: RelayHead, limit: int) -> Records:
        """Return the group ends after an index entry and before the next one."""
        number, begin = base.location
        stop = min(limit, begin + INDEX_EVERY_BYTES)
        path, checksum = relay_path(self.directory, number), self._files.head(number).checksum
        return group_ends(path, begin, stop, checksum=checksum, primary_position=base.primary.position)

    def _group_end(self, place: RelayLocation) -> RelayLocation | None:
        number, offset = place
        while not offset or offset <= self._files.head(number).data_start:
            number -= 1
            if number not in self._files.numbers():
                return None
            offset = self._files.end_of(number)
        return RelayLocation(number, offset)

    def _last_group(self, number: int, end: int) -> int:
        base = self._files.base(number, self._files.index(number).at_or_before(end - 1))
        ends = self._ends_after(base, end - 1)
        return int(ends[-1]["offset"]) if len(ends) else base.location.offset

    def _last_end(self, number: int, begin: int, limit: int) -> RelayHead | None:
        """Return the last group end in (begin, limit]."""
        base = self._files.base(number, self._files.index(number).at_or_before(limit))
        ends = self._ends_after(base, limit)
        if len(ends) and ends[-1]["offset"] > begin:
            return head_at(base, ends, len(ends) - 1)
        return base if base.location.offset > begin else None

    def _first_end(self, number: int, begin: int, limit: int) -> RelayHead | None:
        """Return the first group end in (begin, limit]."""
        index = self._files.index(number)
        base = self._files.base(number, index.at_or_before(begin))
        ends = self._ends_after(base, limit)
        after = int(np.searchsorted(ends["offset"], begin, side="right"))
        if after < len(ends):
            return head_at(base, ends, after)
        entry = index.at_or_after(begin + 1)
        return self._files.base(number, entry) if entry is not None and entry.end <= limit else None

    def _at(self, location: RelayLocation) -> RelayHead:
        """Return the `RelayHead` of a location before which the requested range has no group."""
        head = self.head()
        if head is not None and head.location == location:
            return head
        if location.file not in self._files.numbers():
            raise purged(location.file)
        found = self._last_end(location.file, 0, location.offset) if location.offset else None
        return found or self._files.base(location.file, None)

    def _locate_in(self, number: int, position: GtidPosition) -> RelayLocation | None:
        base = self._files.base(number, self._files.index(number).reached(position))
        return self._locate_after(base, position)

    def _locate_after(self, base: RelayHead, position: GtidPosition) -> RelayLocation | None:
        """Return the location of `position` at an index entry or before the next one."""
        if base.position == position:
            return base.location
        wanted = {gtid.domain_id: gtid for gtid in position}
        seen = {gtid.domain_id: gtid for gtid in base.position}
        ends = self._ends_after(base, self._files.end_of(base.location.file))
        for offset, gtid in zip(ends["offset"].tolist(), end_gtids(ends), strict=True):
            seen[gtid.domain_id] = gtid
            if wanted.get(gtid.domain_id) == gtid and seen == wanted:
                return RelayLocation(base.location.file, offset)
        return None

    def _search(self, numbers: range, position: GtidPosition) -> RelayLocation | None:
        """Search every range, newest first, because the binary search misses positions after numbers went back."""
        for number in self._files.may_hold(numbers, position):
            for entry in reversed([None, *self._files.index(number).entries]):
                found = self._locate_after(self._files.base(number, entry), position)
                if found is not None:
                    return found
        return None


def _is_at(found: RelayHead, place: BinlogPosition, order: LogOrder) -> bool:
    """Return True if a location of the log is that place of the primary.

    At the start of the log, the place that is recorded in `relay.order` counts too.
    """
    begun = order.begun
    first = begun is not None and begun.place == place and begun.number == found.location.file
    return found.primary == place or (first and found.timestamp == 0)
