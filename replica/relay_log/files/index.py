"""Index (sidecar) of a relay file: group ends, at least every 64 KB, with their positions.

    header   8  magic "RELAYIDX"
             4  version = 2 (version 1 has no marks of XA groups)
             4  zero
    entry    4  length of the entry
             4  flags: 1 last entry of a file that is complete and on disk
                2 sequence numbers went back before this group end
                4 a group since the previous entry prepares or ends an XA transaction
                8 with 1: the file has no XA group, and its sequence numbers only grow
                16 with 1: the same holds for all files of the log up to this one
             8  relay file offset just after a group
             8  offset in the primary's file just after that group (64-bit)
             4  time of the group, seconds since 1970 UTC
             4  number of domains
             4  which of them the group belongs to
            16  for each domain: domain id 4, server id 4, sequence number 8
             4  CRC32 of the entry before it

All numbers are little endian. Groups without an entry end at most 64 KB after the previous entry or the start of the
data. A lookup therefore reads at most 64 KB. A missing or torn index is created again from the relay file.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from replica.errors import RelayError
from replica.protocol.gtid import Gtid, GtidPosition, Order
from replica.relay_log.kernels.kernel_deframe import ENTRY_CRC_BYTES, MAX_ENTRY_BYTES, UNORDERED_FLAG, XA_FLAG
from replica.relay_log.kernels.stream_record import DomainRow, EntryHead

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"RELAYIDX"
VERSION = 2
INDEX_HEADER = struct.Struct("<8sII")
SEALED_FLAG = 1
PLAIN_FILE_FLAG = 8
PLAIN_LOG_FLAG = 16

_ENTRY = EntryHead.packing()
_DOMAIN = DomainRow.packing()
_CRC = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<II")  # length and flags
_ODD_FLAGS = UNORDERED_FLAG | XA_FLAG
_TAIL_BYTES = 1024  # holds the last entry of a log with up to sixty domains
_READ_BYTES = 1 << 20  # the sidecar of a file of 256 MB with a few domains is smaller


class IndexEntry(NamedTuple):
    """Index entry, which describes a group end. `domains` holds the raw rows, and `position` decodes them on demand."""

    end: int
    primary_position: int
    timestamp: int
    flags: int
    last_domain: int
    domains: bytes

    @property
    def gtids(self) -> tuple[Gtid, ...]:
        """Rows of the entry in order; the group's own GTID is number `last_domain`."""
        return tuple(Gtid(*row) for row in _DOMAIN.iter_unpack(self.domains))

    @property
    def position(self) -> GtidPosition:
        return GtidPosition(self.gtids)

    @property
    def sealed(self) -> bool:
        return bool(self.flags & SEALED_FLAG)

    @property
    def unordered(self) -> bool:
        return bool(self.flags & UNORDERED_FLAG)

    @property
    def has_xa(self) -> bool:
        return bool(self.flags & XA_FLAG)

    @property
    def plain_file(self) -> bool:
        """True for the last entry of a sealed file without XA groups whose sequence numbers only grow."""
        return bool(self.flags & PLAIN_FILE_FLAG)

    @property
    def plain_log(self) -> bool:
        """True if the same holds for all earlier files of the log."""
        return bool(self.flags & PLAIN_LOG_FLAG)

    def judged(self, *, plain: bool, before: bool) -> IndexEntry:
        """Return the sealing entry with the flags of plain files.

        Args:
            plain: Whether all earlier entries of the file are plain.
            before: Whether all earlier files of the log are plain.
        """
        plain = plain and not self.flags & _ODD_FLAGS
        return self._replace(flags=self.flags | PLAIN_FILE_FLAG * plain | PLAIN_LOG_FLAG * (plain and before))


def plain_entries(entries: memoryview) -> bool:
    """Return True if no entry in these bytes has a flag that makes a file not plain."""
    offset = 0
    while offset < len(entries):
        length, flags = _HEAD.unpack_from(entries, offset)
        if flags & _ODD_FLAGS:
            return False
        offset += length
    return True


def encode_header() -> bytes:
    return INDEX_HEADER.pack(MAGIC, VERSION, 0)


def encode_entry(entry: IndexEntry) -> bytes:
    """Encode an entry, in the same bytes that the kernel writes."""
    length = _ENTRY.size + len(entry.domains) + ENTRY_CRC_BYTES
    content = (
        _ENTRY.pack(
            *(length, entry.flags, entry.end, entry.primary_position, entry.timestamp),
            *(len(entry.domains) // _DOMAIN.size, entry.last_domain),
        )
        + entry.domains
    )
    return content + _CRC.pack(crc32(content))


def decode_entries(data: bytes) -> tuple[list[IndexEntry], int]:
    """Return the complete entries at the start of `data`, and the number of their bytes.

    Decoding stops at the first torn entry.
    """
    entries: list[IndexEntry] = []
    offset = 0
    while offset + _ENTRY.size <= len(data):
        length, flags, end, primary_position, timestamp, domains, last_domain = _ENTRY.unpack_from(data, offset)
        expected = _ENTRY.size + _DOMAIN.size * domains + ENTRY_CRC_BYTES
        if length != expected or length > MAX_ENTRY_BYTES or offset + length > len(data):
            break
        content = data[offset : offset + length - ENTRY_CRC_BYTES]
        if _CRC.unpack_from(data, offset + len(content))[0] != crc32(content):
            break
        entries.append(
            IndexEntry(end, primary_position, timestamp, flags, last_domain, content[_ENTRY.size :]),
        )
        offset += length
    return entries, offset


@dataclass(slots=True)
class FileIndex:
    """Entries of one relay file that are written so far; `refresh` reads the entries after the last call."""

    path: Path
    entries: list[IndexEntry] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    _read: int = INDEX_HEADER.size

    def refresh(self) -> None:
        if self.entries and self.entries[-1].sealed:
            return
        try:
            with self.path.open("rb") as file:
                magic, version, _ = _header(file.read(INDEX_HEADER.size))
                if magic != MAGIC or version != VERSION:
                    raise RelayError(
                        f"{self.path} is not a relay index of version {VERSION}.",
                        hint="Remove it: the next start of the replica rebuilds it.",
                    )
                file.seek(self._read)
                pending = b""
                while piece := file.read(_READ_BYTES):
                    data = pending + piece
                    entries, used = decode_entries(data)
                    self.entries += entries
                    self.ends += [entry.end for entry in entries]
                    self._read += used
                    pending = data[used:]
                    if len(pending) > MAX_ENTRY_BYTES:
                        break  # an entry in the middle is torn, and the rest cannot be read
        except FileNotFoundError:
            raise RelayError(
                f"{self.path} is missing.",
                hint="Its relay file was purged, or someone deleted the index. The next start of the replica "
                "rebuilds the index.",
            ) from None

    def forget_after(self, end: int) -> None:
        """Drop the entries of groups that end after `end`; the next refresh reads them again."""
        while self.entries and self.entries[-1].end > end:
            self.ends.pop()
            self._read -= len(encode_entry(self.entries.pop()))

    def at_or_before(self, offset: int) -> IndexEntry | None:
        """Return the last entry whose group ends at or before `offset`."""
        found = bisect_right(self.ends, offset)
        return self.entries[found - 1] if found else None

    def at_or_after(self, offset: int) -> IndexEntry | None:
        """Return the first entry whose group ends at or after `offset`."""
        found = bisect_left(self.ends, offset)
        return self.entries[found] if found < len(self.ends) else None

    def xa_marks(self, begin: int, limit: int, max_bytes: int) -> list[tuple[int, int]]:
        """Return the parts of [begin, limit), two group ends, that may contain XA groups.

        Neighbouring parts are joined up to `max_bytes`.
        """
        marks: list[tuple[int, int]] = []
        at = begin
        for entry in self.entries[bisect_right(self.ends, begin) :]:
            if at >= limit:
                return marks
            stop = min(entry.end, limit)
            if entry.has_xa and marks and marks[-1][1] == at and stop - marks[-1][0] <= max_bytes:
                marks[-1] = (marks[-1][0], stop)
            elif entry.has_xa:
                marks.append((at, stop))
            at = stop
        if at < limit:
            marks.append((at, limit))  # no entry describes the groups after the last one yet
        return marks

    def reached(self, position: GtidPosition) -> IndexEntry | None:
        """Return the last entry whose position is not after `position`."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].position.compare(position) in (Order.EQUAL, Order.BEFORE):
                low = middle + 1
            else:
                high = middle
        return self.entries[low - 1] if low else None


def _header(data: bytes) -> tuple[bytes, int, int]:
    if len(data) < INDEX_HEADER.size:
        return MAGIC, VERSION, 0  # the writer is creating the file, which has no entry yet
    magic, version, zero = INDEX_HEADER.unpack(data)
    return magic, version, zero


def last_entry(path: Path) -> IndexEntry | None:
    """Return the last entry of an index file if it seals the relay file; None otherwise.

    Only the end of the file is read.
    """
    try:
        with path.open("rb") as file:
            magic, version, _ = _header(file.read(INDEX_HEADER.size))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TAIL_BYTES, INDEX_HEADER.size))
            tail = file.read(MAX_ENTRY_BYTES)
            if magic != MAGIC or version != VERSION:
                return None
            entry = _sealed_at_end(tail)
            if entry is None and size > _TAIL_BYTES:  # the entry may have hundreds of domains
                file.seek(max(size - MAX_ENTRY_BYTES, INDEX_HEADER.size))
                entry = _sealed_at_end(file.read(MAX_ENTRY_BYTES))
            return entry
    except FileNotFoundError:
        return None


def _sealed_at_end(tail: bytes) -> IndexEntry | None:
    for length in range(_ENTRY.size + ENTRY_CRC_BYTES, len(tail) + 1, _DOMAIN.size):
        if _LENGTH.unpack_from(tail, len(tail) - length)[0] == length:
            entries, _ = decode_entries(tail[-length:])
            if len(entries) == 1:  # otherwise a number inside the entry only looked like its length
                return entries[0] if entries[0].sealed else None
    return None
