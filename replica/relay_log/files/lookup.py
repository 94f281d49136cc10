"""The files of a relay log as a reader sees them: which there are, their heads, sidecars and ends.

In: a directory that a writer may be writing and retention emptying. Out: facts, kept in memory while they hold. No call
looks at more than a few files, however many there are: numbers have no gaps, so the oldest and the published head tell
all of them. Refuses: files that were removed meanwhile (RelayFileRemovedError). Not thread-safe.
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
"""Sidecars are read again when they are needed: some 100 KB each."""
HEADS_IN_MEMORY: Final = 256
"""Halving over 10 000 files looks at 14 of them, mostly the same ones. Some KB each."""
_ALL: Final = 1 << 62
_UNSEALED: Final = IndexEntry(0, 0, 0, 0, 0, b"")


class _Oldest(NamedTuple):
    """The oldest file, recognised: another one under its number means that the log was made again."""

    number: int
    inode: int
    sealed_at: int | None


class RelayFiles:
    """The files of a directory. Numbers are of relay files with at least one committed group."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._heads: dict[int, FileHead] = {}
        self._indexes: dict[int, FileIndex] = {}
        self._oldest: _Oldest | None = None
        self._checked = 0
        self._unordered: set[int] = set()

    def published(self) -> RelayHead | None:
        """Return where the last complete group ends; None where no replica has written."""
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
        self._heads[number] = head  # newest last
        if len(self._heads) > HEADS_IN_MEMORY:
            del self._heads[next(iter(self._heads))]
        return head

    def index(self, number: int) -> FileIndex:
        """Return the sidecar of a file as far as its groups are published: the writer puts entries there first."""
        index = self._indexes.pop(number, None) or FileIndex(index_path(self.directory, number))
        self._indexes[number] = index  # newest last
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
        """Return where the last committed group of a file ends."""
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
        """Return an index entry as a place; without one, the start of the file's groups."""
        head = self.head(number)
        if entry is None:
            return RelayHead(RelayLocation(number, head.data_start), head.position, head.primary, 0)
        primary = BinlogPosition(head.primary.file, entry.primary_position)
        return RelayHead(RelayLocation(number, entry.end), entry.position, primary, entry.timestamp)

    def starts_by(self, number: int, position: GtidPosition) -> bool:
        return self.head(number).position.compare(position) in (Order.EQUAL, Order.BEFORE)

    def may_hold(self, numbers: range, position: GtidPosition) -> list[int]:
        """List the files in which halving may have missed `position`, newest first: none where numbers only grow."""
        unordered = self.unordered(numbers)
        if not unordered:
            return []
        return [n for n in reversed(numbers) if n in unordered or self._between(n, numbers[-1], position)]

    def unordered(self, numbers: range) -> set[int]:
        """Return the files in which sequence numbers went back.

        Each file is looked at once in the life of this object, and none before one that tells of all before it.
        """
        for number in reversed(range(max(self._checked, numbers.start), numbers.stop)):
            entry = last_entry(index_path(self.directory, number))
            if entry is not None and entry.plain_log:
                self._checked = number + 1
            if entry is not None:
                break  # the newest complete file
        for number in range(max(self._checked, numbers.start), numbers.stop):
            entry = last_entry(index_path(self.directory, number))
            if entry is None:  # the one that is being written; or purged just now
                entry = next(iter(self.index(number).entries[-1:]), None) if number == numbers[-1] else None
            else:
                self._checked = number + 1
            if entry is not None and entry.unordered:
                self._unordered.add(number)
        return self._unordered

    def not_plain(self, first: int, last: int) -> Iterator[int]:
        """Yield the files from `first` to `last`, less those that hold no XA groups, as the ends of their sidecars
        tell.

        None of those between is looked at before the first that is not plain, or has such a one before it in the log.
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
        """Forget what is known of files before that number; all of it where the log was made again."""
        self._heads = {n: head for n, head in self._heads.items() if n >= before}
        self._indexes = {n: index for n, index in self._indexes.items() if n >= before}
        self._unordered = {n for n in self._unordered if n >= before}
        self._checked = 0 if before == _ALL else self._checked

    def _find_oldest(self, last: int) -> _Oldest | None:
        """Find the oldest file by halving: files are removed oldest first, so none is missing behind it."""
        while True:
            number = bisect_left(range(1, last + 1), 1, key=lambda n: int(relay_path(self.directory, n).exists())) + 1
            found = self._recognise(number, last)
            if found is not None or number > last:
                return found  # else it was removed just now

    def _recognise(self, number: int, last: int) -> _Oldest | None:
        try:
            status = relay_path(self.directory, number).stat()
        except FileNotFoundError:
            return None
        if number > last:
            return None  # it waits for its first group
        return _Oldest(number, status.st_ino, status.st_mtime_ns if number < last else None)


def purged(number: int) -> RelayFileRemovedError:
    return RelayFileRemovedError(
        f"relay.{number:06d} is no longer in the relay log.",
        hint="The limits of the relay log removed it, or someone did. Start the query again: one with a relay log of "
        "its own fetches from the primary what that still has. Where it comes again, keep the relay log longer than "
        "the slowest query needs.",
    )
