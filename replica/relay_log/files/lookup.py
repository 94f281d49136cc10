"""Files of a relay log: numbers, heads, index files, ends, and their removal.

`RelayFiles` works while a writer writes and retention removes files, and caches facts while they hold. File numbers
have no gaps, so the oldest file and the published head determine all numbers. A call opens only a few files. A file
that is removed meanwhile raises RelayFileRemovedError. Not thread-safe.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError, RelayError, RelayFileRemovedError
from replica.protocol.constants import BINLOG_MAGIC, HEADER_LENGTH, EventType
from replica.protocol.events.binlog_file import encode_gtid_list, encode_rotate
from replica.protocol.events.decode import FormatDescriptionEvent, GtidListEvent, RotateEvent, decode
from replica.protocol.gtid import BinlogPosition, GtidPosition, Order
from replica.protocol.header import parse_header
from replica.relay_log.directory.disk import sync_directory
from replica.relay_log.directory.head import read_head
from replica.relay_log.files.index import FileIndex, IndexEntry, last_entry
from replica.relay_log.kernels.stream_record import MAX_DOMAINS
from replica.relay_log.location import RelayHead, RelayLocation, index_path, relay_numbers, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
# The head starts with the magic and the primary's FORMAT_DESCRIPTION. An artificial ROTATE with the primary's file and
# offset follows, and then a GTID_LIST with the position before the first group. `encode_file_head` writes the head,
# and `read_file_head` reads it back as a `FileHead`. A file with another beginning is torn or foreign, and is refused.


MAX_HEAD_BYTES = (64 << 10) + 16 * MAX_DOMAINS  # FORMAT_DESCRIPTION and ROTATE have less than 1 KB each


class FileHead(NamedTuple):
    """Head of a relay file.

    `format` is the raw FORMAT_DESCRIPTION event, `data_start` the offset of the first group.
    """

    format: bytes
    checksum: bool
    primary: BinlogPosition
    position: GtidPosition
    data_start: int

    @property
    def server_id(self) -> int:
        """Id of the server from whose binlog the file was copied."""
        return parse_header(memoryview(self.format)).server_id

    @property
    def identity(self) -> tuple[str, bytes]:
        return file_identity(self.format, self.primary.file)


def file_identity(fde: bytes, primary_file: str) -> tuple[str, bytes]:
    """Return what identifies a binlog file in every dump: its name, and the constant part of its FORMAT_DESCRIPTION.

    If a dump starts inside a file, the dump thread changes log_pos, the IN_USE flag, `created` and the checksum
    (sql_repl.cc: send_format_descriptor_event). Server id and time stay.
    """
    created = HEADER_LENGTH + 2 + 50
    return primary_file, fde[:13] + fde[HEADER_LENGTH:created] + fde[created + 4 : -4]


def encode_file_head(fde: bytes, primary: BinlogPosition, position: GtidPosition) -> bytes:
    event = decode(memoryview(fde), None)
    if not isinstance(event, FormatDescriptionEvent):
        raise ProtocolError("the primary's file does not begin with a FORMAT_DESCRIPTION event")
    server_id = event.header.server_id
    head = b"".join(
        (
            BINLOG_MAGIC,
            fde,
            encode_rotate(primary.file, primary.position, server_id=server_id, checksum=event.checksum),
            encode_gtid_list(position, server_id=server_id, checksum=event.checksum),
        )
    )
    try:
        found = _parse(head)
    except (ProtocolError, IndexError):
        found = None
    if found is None or (found.format, found.primary, found.position) != (fde, primary, position):
        raise ProtocolError(f"the FORMAT_DESCRIPTION event of {primary.file} is damaged: it describes other events")
    return head


def read_file_head(path: Path) -> FileHead:
    """Read the head of a relay file.

    Raises:
        FileNotFoundError: The file does not exist.
        RelayError: The file does not begin with a relay file head.
    """
    with path.open("rb") as file:
        data = file.read(MAX_HEAD_BYTES)
    try:
        return _parse(data)
    except (ProtocolError, IndexError) as error:
        raise RelayError(
            f"{path} does not begin like a relay file: {error}.",
            hint="It is incomplete, or not a relay file. Move it away and start from the last position.",
        ) from error


def _parse(data: bytes) -> FileHead:
    if not data.startswith(BINLOG_MAGIC):
        raise ProtocolError("no binlog magic", offset=0)
    view, offset = memoryview(data), len(BINLOG_MAGIC)
    events = []
    fde: FormatDescriptionEvent | None = None
    for expected in (EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.GTID_LIST):
        header = parse_header(view, offset)
        if header.event_type != expected or offset + header.event_length > len(data):
            raise ProtocolError(f"no complete {expected.name} event", offset=offset)
        event = decode(view[offset : offset + header.event_length], fde)
        if isinstance(event, FormatDescriptionEvent):
            fde = event
        events.append(event)
        offset += header.event_length
    _, rotate, gtids = events
    if fde is None or not isinstance(rotate, RotateEvent) or not isinstance(gtids, GtidListEvent):
        raise ProtocolError("events at the start of the file do not have the format of their type")
    raw = data[len(BINLOG_MAGIC) : len(BINLOG_MAGIC) + fde.header.event_length]
    return FileHead(
        raw, bool(fde.checksum), BinlogPosition(rotate.file, rotate.position), GtidPosition.last_of(gtids.gtids), offset
    )


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
            advanced = known and same is None and self._oldest and self._oldest.number > known.number
            self._forget(self._oldest.number if advanced and self._oldest else _ALL)
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
            index.forget_after(self.end_of(number))
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
        """Return the files in which a binary search may have missed `position`, newest first.

        There are none if the sequence numbers only grow.
        """
        unordered = self.unordered(numbers)
        if not unordered:
            return []
        return [n for n in reversed(numbers) if n in unordered or self._between(n, numbers[-1], position)]

    def unordered(self, numbers: range) -> set[int]:
        """Return the files in which sequence numbers went back.

        Each index file is read once. An index that covers all earlier files makes reading their index files
        unnecessary.
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
        """Yield the files from `first` to `last` that may contain XA groups, including always `first` and `last`.

        A file between the two is omitted if its index says that it has no XA group. A binary search finds the first
        file that is not plain or follows such a file, so most index files are not opened.
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
        """Find the oldest file by binary search.

        Files are removed oldest first, so the remaining numbers have no gap.
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


# `SealedFiles` lists the directory only once. Files are added at the end and removed at the beginning, so a later call
# checks the oldest file alone. Another process may remove files at any time. Thread-safe.


class SealedFiles:
    """Complete relay files; empty at first, filled by `extend` and `add`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}  # ascending numbers; some 100 bytes a file
        self._bytes = 0
        self._next: int | None = None

    def extend(self, last: int) -> None:
        """Add the files up to number `last` that are new since the last call."""
        with self._lock:
            if self._next is None or not self._sizes:
                numbers = [n for n in relay_numbers(self._directory) if n <= last and n not in self._sizes]
            else:
                numbers = list(range(self._next, last + 1))
            for number in numbers:
                self._add(number, self._size(number))
            self._next = max(self._next or 0, last + 1)

    def add(self, number: int, size: int) -> None:
        """Add a file that has just been completed."""
        with self._lock:
            self._add(number, size)
            self._next = number + 1

    def oldest(self) -> tuple[int, int] | None:
        """Return the number and size of the oldest existing file."""
        with self._lock:
            while self._sizes:
                number = next(iter(self._sizes))
                if self._size(number) is not None:
                    return number, self._sizes[number]
                self._bytes -= self._sizes.pop(number)
            return None

    def total(self) -> tuple[int, int]:
        """Return the number of files and their total bytes."""
        self.oldest()
        return len(self._sizes), self._bytes

    def forget(self, number: int) -> None:
        with self._lock:
            self._bytes -= self._sizes.pop(number, 0)

    def _add(self, number: int, size: int | None) -> None:
        if size is not None and number not in self._sizes:
            self._sizes[number] = size
            self._bytes += size

    def _size(self, number: int) -> int | None:
        try:
            return relay_path(self._directory, number).stat().st_size
        except FileNotFoundError:
            return None


# A relay file is removed before its index: the next start removes an index without a file, but would scan a file
# without an index. The removal of each file is durable before the next one begins. So after a power cut, the newest
# removed files come back first, and never an old one alone. OSErrors are passed on.


def remove_files(directory: Path, numbers: Iterable[int]) -> None:
    """Remove relay files in the given order: ascending from the oldest, or descending from the newest."""
    for number in numbers:
        relay_path(directory, number).unlink(missing_ok=True)
        sync_directory(directory)
        index_path(directory, number).unlink(missing_ok=True)


def remove_oldest(directory: Path, numbers: range) -> None:
    """Remove the oldest files, oldest first.

    The remaining files may be the only record of the log's end, so they are synced to disk first.
    """
    for number in range(numbers.stop, numbers.start, -1):
        if last_entry(index_path(directory, number)) is not None:
            break  # this file is sealed, and so are all files before it
        _sync_file(relay_path(directory, number))
    sync_directory(directory)
    remove_files(directory, numbers)


def _sync_file(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the caller removes the whole log
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
