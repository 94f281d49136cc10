"""Lookup of single event groups of a relay log by time, by place on the primary or by GTID.

`RelayGroups` returns the first matching group with its start and end. It uses the index files and the group ends that
the kernel finds, and decodes nothing. A binary search skips files if the searched value grows along the log. Files that
are purged meanwhile raise DataLossError.

Times are commit times in seconds since 1970, from the event that ends a group. They grow only roughly: commits wait,
clocks are set, and sessions may choose their own time. A search by time therefore starts DISORDER_S before the first
index entry that is late enough. If two groups are out of order, the first one in the log counts.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.protocol.gtid import Gtid
from replica.relay_log.files.lookup import RelayFiles
from replica.relay_log.files.scan import end_gtids, group_ends, head_at
from replica.relay_log.kernels.kernel_deframe import INDEX_EVERY_BYTES
from replica.relay_log.kernels.stream_record import GroupEnd
from replica.relay_log.location import RelayHead, RelayLocation, relay_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from replica.native.record import Records
    from replica.protocol.gtid import BinlogPosition, GtidPosition
    from replica.relay_log.files.index import IndexEntry

DISORDER_S: Final = 60
"""Tolerated disorder of commit times in seconds. Commits that wait for a lock, a disk or an ACK are out of order by
seconds; a minute means an outage.
"""

_ANY_TIME: Final = 1 << 32


class LogGroup(NamedTuple):
    """Event group with its GTID, start and end."""

    gtid: Gtid
    before: RelayHead
    after: RelayHead

    @property
    def begins(self) -> int:
        """Byte offset of the group's first event in the primary's file.

        The offset is too high by the size of the events that the primary omitted from the dump.
        """
        return self.after.primary.position - (self.after.location.offset - self.before.location.offset)


class Around(NamedTuple):
    """Surroundings of a place in the primary's binlog.

    `before` is the last group end at or before the place. `group` contains the place, or is the next group.
    """

    before: RelayHead
    group: LogGroup | None
    inside: bool
    """Whether the place is inside `group`, or between events without a group that directly precede `group`."""


class _Stretch(NamedTuple):
    """Group ends after an index entry, as GroupEnd records; the next entry is the last of them."""

    base: RelayHead
    ends: Records


class RelayGroups:
    """Groups of one relay directory. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files = RelayFiles(directory)

    def first_at(self, time_s: int, start: RelayLocation | None = None) -> LogGroup | None:
        """Return the first group from `start` on, in log order, that was committed at `time_s` or later."""
        early = time_s - DISORDER_S
        numbers = self.files.numbers()
        first = numbers.start + bisect_left(numbers, 1, key=lambda number: int(self._latest(number) >= early))
        for number in range(max(first, start.file if start else 0), numbers.stop):
            entries = self.files.index(number).entries
            at = next((at for at, entry in enumerate(entries) if entry.timestamp >= early), len(entries))
            begin = entries[at - 1].end if at else 0
            if start is not None and start.file == number:
                begin = max(begin, start.offset)
            found = self._first(number, begin, lambda ends: ends["timestamp"] >= time_s)
            if found is not None:
                return found
        return None

    def around(self, place: BinlogPosition) -> Around | None:
        """Return the surroundings of a place in the primary's binlog; None if the log does not contain that part.

        If several primaries have a file of this name, the newest counts.
        """
        numbers = self.files.numbers()
        number = next((n for n in reversed(numbers) if self._begins_by(n, place, numbers)), None)
        if number is None:
            return None
        while True:
            entries = self.files.index(number).entries
            at = bisect_left(entries, place.position, key=lambda entry: entry.primary_position)
            begin = entries[at - 1].end if at else 0
            found = self._first(number, begin, lambda ends: ends["position"] > place.position)
            if found is not None:
                first = found.before.location.offset == self.files.head(number).data_start
                begins = found.begins if first else found.before.primary.position
                return Around(found.before, found, inside=begins < place.position)
            if number + 1 not in numbers or not self._of(number + 1, place.file):
                break
            number += 1
        end = self._end(number)
        head = self.files.published()
        if end.primary.position < place.position and (head is None or head.location.file == number):
            return None
        return Around(end, self.next_to(end.location), inside=False)

    def find(self, search: GtidSearch, start: RelayLocation | None = None) -> LogGroup | None:
        """Return the group that `search` looks for, from `start` on or in the whole log.

        If the log lacks the group, return None; `search` then has its neighbours. Without `start`, a binary search over
        files and index entries is followed by a scan of 64 KB. If sequence numbers went back, the binary search may
        miss the group. Then every file is scanned, newest first.
        """
        numbers = self.files.numbers()
        if start is not None:
            walks = (
                self._walk(search, number, start.offset if number == start.file else 0)
                for number in range(max(start.file, numbers.start), numbers.stop)
            )
            return next(filter(None, walks), None)
        found = self._walk_on(search, numbers)
        if found is None and self.files.unordered(numbers):
            found = next(filter(None, (self._walk(search, number, 0) for number in reversed(numbers))), None)
        return found

    def _walk_on(self, search: GtidSearch, numbers: range) -> LogGroup | None:
        """Scan from the last known location before the GTID until the GTID or a later one is found."""
        gtid = search.gtid
        begun = bisect_left(numbers, 1, key=lambda number: int(not _is_before(self.files.head(number).position, gtid)))
        for number in numbers[max(begun - 1, 0) :] if begun else ():
            begin = 0
            if number == numbers[begun - 1]:
                entries = self.files.index(number).entries
                before = bisect_left(entries, 1, key=lambda entry: int(not _is_before(entry.position, gtid)))
                begin = entries[before - 1].end if before else 0
                position = entries[before - 1].position if before else self.files.head(number).position
                search.before = position.get(gtid.domain_id)
            found = self._walk(search, number, begin, only_to_it=True)
            if found is not None or search.after is not None:
                return found
        return None

    def _walk(self, search: GtidSearch, number: int, begin: int, *, only_to_it: bool = False) -> LogGroup | None:
        """Find the group in a file after `begin`; with `only_to_it`, a later GTID of the domain ends the scan."""
        for base, ends in self.stretches(number, begin):
            later = ends[ends["offset"] > begin]
            rows = search.matches(later["domain"], later["server"], later["sequence"])
            if len(rows):
                return self.group(base, ends, int(rows[0]) + len(ends) - len(later))
            if only_to_it and search.after is not None:
                return None
        return None

    def next_to(self, location: RelayLocation) -> LogGroup | None:
        """Return the group that begins at a location of the log; None at the log's end."""
        numbers = self.files.numbers()
        for number in range(max(numbers.start, location.file), numbers.stop):
            begin = location.offset if number == location.file else 0
            found = self._first(number, begin, lambda ends: np.ones(len(ends), np.bool_))
            if found is not None:
                return found
        return None

    def _begins_by(self, number: int, place: BinlogPosition, numbers: range) -> bool:
        """Return True if a relay file begins at or before the place.

        The first relay file of a primary's file counts from the start of the primary's file.
        """
        begin = self.files.head(number).primary
        whole = number - 1 in numbers and not self._of(number - 1, begin.file)
        return begin.file == place.file and (whole or begin.position <= place.position)

    def _of(self, number: int, file: str) -> bool:
        return self.files.head(number).primary.file == file

    def _end(self, number: int) -> RelayHead:
        """Return the end of a file's last group."""
        last = None
        begin = self.files.end_of(number) - INDEX_EVERY_BYTES
        for base, ends in self.stretches(number, max(begin, 0)):
            last = head_at(base, ends, len(ends) - 1)
        return last or self.files.base(number, None)

    def _latest(self, number: int) -> int:
        """Return the latest commit time in a file's index, so that one early time does not hide the other groups.

        The index of a file is incomplete until it is sealed; such a file returns _ANY_TIME.
        """
        entries = self.files.index(number).entries
        return max(entry.timestamp for entry in entries) if entries and entries[-1].sealed else _ANY_TIME

    def _first(self, number: int, begin: int, fits: Callable[[Records], NDArray[np.bool_]]) -> LogGroup | None:
        """Return the first matching group of a file that begins at or after `begin`."""
        for base, ends in self.stretches(number, begin):
            fitting = fits(ends) & (ends["offset"] > begin)
            if fitting.any():
                return self.group(base, ends, int(np.argmax(fitting)))
        return None

    def stretches(self, number: int, begin: int) -> Iterator[_Stretch]:
        """Yield all group ends of a file, starting at the index entry before `begin`."""
        files, limit = self.files, self.files.end_of(number)
        index = files.index(number)
        path, checksum = relay_path(self._directory, number), files.head(number).checksum
        entry = index.at_or_before(begin)
        while True:
            base = files.base(number, entry)
            entry = index.at_or_after(base.location.offset + 1)
            stop = min(limit, base.location.offset + INDEX_EVERY_BYTES, entry.end - 1 if entry else limit)
            ends = group_ends(
                path, base.location.offset, stop, checksum=checksum, primary_position=base.primary.position
            )
            if entry is not None and entry.end <= limit:
                ends = np.concatenate([ends, _row(entry)])
            if len(ends):
                yield _Stretch(base, ends)
            if entry is None or entry.end >= limit:
                return

    def ends_before(self, limit: RelayLocation) -> Iterator[RelayLocation]:
        """Yield the ends of all groups up to `limit`, the last one first."""
        for number in reversed(self.files.numbers()):
            end = self.files.end_of(number)
            marks = [0, *dict.fromkeys(mark for mark in self.files.index(number).ends if mark < end)]
            for stretch in (next(self.stretches(number, mark), None) for mark in reversed(marks)):
                offsets = () if stretch is None else reversed(stretch.ends["offset"].tolist())
                yield from (place for offset in offsets if (place := RelayLocation(number, offset)) <= limit)

    def group(self, base: RelayHead, ends: Records, row: int) -> LogGroup:
        """Return the group that ends at a row of a range."""
        before = head_at(base, ends, row - 1) if row else base
        (gtid,) = end_gtids(ends[row : row + 1])
        return LogGroup(gtid, before, head_at(base, ends, row))


def _is_before(position: GtidPosition, gtid: Gtid) -> bool:
    known = position.get(gtid.domain_id)
    return known is None or known.seq_no < gtid.seq_no


def _row(entry: IndexEntry) -> Records:
    """Return an index entry as a GroupEnd record."""
    last = entry.gtids[entry.last_domain]
    sequence = np.uint64(last.seq_no).view(np.int64)
    row = (entry.end, last.domain_id, last.server_id, sequence, entry.timestamp, entry.primary_position)
    return np.array([row], GroupEnd.dtype)


@dataclass(slots=True)
class GtidSearch:
    """Search for one GTID, with the neighbours found so far."""

    gtid: Gtid
    before: Gtid | None = None
    """GTID of the domain with the nearest lower number."""
    after: Gtid | None = None
    """GTID of the domain with the nearest higher number."""
    other: Gtid | None = None
    """GTID of another server with the same number."""

    def matches(
        self, domains: NDArray[np.int64], servers: NDArray[np.int64], sequences: NDArray[np.int64]
    ) -> NDArray[np.intp]:
        """Return the rows with the wanted GTID, in order; `sequences` hold the unsigned numbers as int64."""
        of_domain = np.flatnonzero(domains == self.gtid.domain_id)
        if not len(of_domain):
            return of_domain
        sequence, server = sequences[of_domain].view(np.uint64), servers[of_domain]
        wanted = np.uint64(self.gtid.seq_no)
        same = sequence == wanted
        for side, nearest in ((sequence < wanted, np.argmax), (sequence > wanted, np.argmin)):
            if side.any():
                row = int(nearest(sequence[side]))
                self._neighbour(self._gtid(server[side][row], sequence[side][row]))
        others = server[same & (server != self.gtid.server_id)]
        if len(others):
            self.other = self._gtid(others[-1], wanted)
        return of_domain[same & (server == self.gtid.server_id)]

    def _neighbour(self, gtid: Gtid) -> None:
        if gtid.seq_no < self.gtid.seq_no and (self.before is None or gtid.seq_no > self.before.seq_no):
            self.before = gtid
        elif gtid.seq_no > self.gtid.seq_no and (self.after is None or gtid.seq_no < self.after.seq_no):
            self.after = gtid

    def _gtid(self, server: np.int64, sequence: np.uint64) -> Gtid:
        return Gtid(self.gtid.domain_id, int(server), int(sequence))
