"""Files of a relay log as a reader sees them: their numbers, heads, index files and ends.

`RelayFiles` works while a writer writes and retention removes files, and caches facts while they hold. File numbers
have no gaps, so the oldest file and the published head determine all numbers. No call looks at more than a few files. A
file that is removed meanwhile raises RelayFileRemovedError. Not thread-safe.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import RelayError, RelayFileRemovedError
from replica.protocol.gtid import BinlogPosition, Order
from replica.relay_log.directory.head import read_head
from replica.relay_log.files.file_head import FileHead, read_file_head
from replica.relay_log.files.index import FileIndex, IndexEntry, last_entry
from replica.relay_log.location import RelayHead, RelayLocation, index_path, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition

INDEXES_IN_MEMORY: Final = 16
"""Cached index files, some 100 KB each; others are read again on demand."""
HEADS_IN_MEMORY: Final = 256
"""Cached file heads, some KB each. A binary search over 10 000 files reads 14 of them, mostly the same ones."""
_ALL: Final = 1 << 62
_UNSEALED: Final = IndexEntry(0, 0, 0, 0, 0, b"")


class _Oldest(NamedTuple):
    """Identity of the oldest file. Another file with its number means that the log was created again."""

    number: int
    inode: int
    sealed_at: int | None


class RelayFiles:
    """Files of a directory. Only relay files with at least one committed group count."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._heads: dict[int, FileHead] = {}
        self._indexes: dict[int, FileIndex] = {}
        self._oldest: _Oldest | None = None
        self._checked = 0
        self._unordered: set[int] = set()

    def published(self) -> RelayHead | None:
        """Return the end of the last complete group; None if no replica has written."""
        return read_head(self.directory)

    def numbers(self) -> range:
        head = self.published()
        if head is None:
            return range(0)
        last = head.location.file if head.location.offset else head.location.file - 1
        known = self._oldest
        same = self._recognise(known.number, last) if known else None
        if same is None or same != known:
            self._oldest = self._find_oldest(last)
            gone_on = known and same is None and self._oldest and self._oldest.number > known.number
            self._forget(self._oldest.number if gone_on and self._oldest else _ALL)
        return range(self._oldest.number, last + 1) if self._oldest else range(0)

    def head(self, number: int) -> FileHead:
        head = self._heads.pop(number, None)
        if head is None:
            try:
                head = read_file_head(relay_path(self.directory, number))
            except FileNotFoundError:
                raise purged(number) from None
        self._heads[number] = head  # last in the order of use
        if len(self._heads) > HEADS_IN_MEMORY:
            del self._heads[next(iter(self._heads))]
        return head

    def index(self, number: int) -> FileIndex:
        """Return the index of a file up to the published end, because the writer adds entries before it publishes."""
        index = self._indexes.pop(number, None) or FileIndex(index_path(self.directory, number))
        self._indexes[number] = index  # last in the order of use
        if len(self._indexes) > INDEXES_IN_MEMORY:
            del self._indexes[next(iter(self._indexes))]
        try:
            index.refresh()
        except RelayError:
            if relay_path(self.directory, number).exists():
                raise
            raise purged(number) from None
        if index.entries and not index.entries[-1].sealed:
            index.forget_behind(self.end_of(number))
        return index

    def end_of(self, number: int) -> int:
        """Return the end of the last committed group of a file."""
        head = self.published()
        if head is not None and head.location.file == number:
            return head.location.offset
        return self.size(number)

    def size(self, number: int) -> int:
        try:
            return relay_path(self.directory, number).stat().st_size
        except FileNotFoundError:
            raise purged(number) from None

    def base(self, number: int, entry: IndexEntry | None) -> RelayHead:
        """Return an index entry as a `RelayHead`; without an entry, the start of the file's groups."""
        head = self.head(number)
        if entry is None:
            return RelayHead(RelayLocation(number, head.data_start), head.position, head.primary, 0)
        primary = BinlogPosition(head.primary.file, entry.primary_position)
        return RelayHead(RelayLocation(number, entry.end), entry.position, primary, entry.timestamp)

    def starts_by(self, number: int, position: GtidPosition) -> bool:
        return self.head(number).position.compare(position) in (Order.EQUAL, Order.BEFORE)

    def may_hold(self, numbers: range, position: GtidPosition) -> list[int]:
        """Return the files in which a binary search may have missed `position`, newest first; none if numbers only
        grow.
        """
        unordered = self.unordered(numbers)
        if not unordered:
            return []
        return [n for n in reversed(numbers) if n in unordered or self._between(n, numbers[-1], position)]

    def unordered(self, numbers: range) -> set[int]:
        """Return the files in which sequence numbers went back.

        This object looks at each file once, and skips all files before one whose index covers the earlier files.
        """
        for number in reversed(range(max(self._checked, numbers.start), numbers.stop)):
            entry = last_entry(index_path(self.directory, number))
            if entry is not None and entry.plain_log:
                self._checked = number + 1
            if entry is not None:
                break  # this is the newest complete file
        for number in range(max(self._checked, numbers.start), numbers.stop):
            entry = last_entry(index_path(self.directory, number))
            if entry is None:  # the file is being written, or was just purged
                entry = next(iter(self.index(number).entries[-1:]), None) if number == numbers[-1] else None
            else:
                self._checked = number + 1
            if entry is not None and entry.unordered:
                self._unordered.add(number)
        return self._unordered

    def not_plain(self, first: int, last: int) -> Iterator[int]:
        """Yield the files from `first` to `last`, without those whose index says that they contain no XA groups.

        A binary search finds the first file in between that is not plain or follows one, so most files are not looked
        at.
        """
        yield first
        numbers = range(first + 1, last)
        begin = bisect_left(numbers, 1, key=lambda n: int(not (self._seal(n) or _UNSEALED).plain_log))
        for number in numbers[begin:]:
            if not (self._seal(number) or _UNSEALED).plain_file:
                yield number
        if last > first:
            yield last

    def _seal(self, number: int) -> IndexEntry | None:
        return last_entry(index_path(self.directory, number))

    def _between(self, number: int, last: int, position: GtidPosition) -> bool:
        return self.starts_by(number, position) and (number == last or not self.starts_by(number + 1, position))

    def _forget(self, before: int) -> None:
        """Forget the files before number `before`; forget everything if the log was created again."""
        self._heads = {n: head for n, head in self._heads.items() if n >= before}
        self._indexes = {n: index for n, index in self._indexes.items() if n >= before}
        self._unordered = {n for n in self._unordered if n >= before}
        self._checked = 0 if before == _ALL else self._checked

    def _find_oldest(self, last: int) -> _Oldest | None:
        """Find the oldest file by binary search: files are removed oldest first, so the remaining numbers have no
        gap.
        """
        while True:
            number = bisect_left(range(1, last + 1), 1, key=lambda n: int(relay_path(self.directory, n).exists())) + 1
            found = self._recognise(number, last)
            if found is not None or number > last:
                return found  # otherwise the file was just removed, and the search repeats

    def _recognise(self, number: int, last: int) -> _Oldest | None:
        try:
            status = relay_path(self.directory, number).stat()
        except FileNotFoundError:
            return None
        if number > last:
            return None  # the file waits for its first group
        return _Oldest(number, status.st_ino, status.st_mtime_ns if number < last else None)


def purged(number: int) -> RelayFileRemovedError:
    return RelayFileRemovedError(
        f"relay.{number:06d} is no longer in the relay log.",
        hint="The limits of the relay log removed it, or someone deleted it. Start the query again: a query with "
        "its own relay log fetches from the primary what that server still has. If the error returns, keep the "
        "relay log longer than the slowest query needs.",
    )
