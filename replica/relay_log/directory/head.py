"""Published end of the log: one record in `relay.head`, which the writer updates in place for other processes.

The writer publishes after every chunk that completes a group, without fsync. The record says what can be read and not
what survives a power cut, so recovery does not use it. A log without a group has offset 0 and its start position. The
primary position `BEGUN` then says that the start is settled, even at the empty position. A half-written record has a
wrong CRC32, and the reader retries. The writer uses a system call and no mapped memory. A copy-on-write file system may
run out of space, and a system call reports that as an error and not as a signal.

Fields by size in bytes, little endian:

    8 magic "RELAYHED", 4 version = 1, 4 length of the record, 4 number of the relay file, 4 commit time in seconds
    since 1970, 8 offset in the relay file, 8 position in the primary's file, 2 length of that file's name, 2 number of
    domains, the name, 16 for each domain, 4 CRC32 of all bytes before
"""

from __future__ import annotations

import errno
import os
import struct
import time
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from replica.errors import RelayError
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.directory.disk import protect
from replica.relay_log.directory.lock import NamedFile
from replica.relay_log.kernels.stream_record import MAX_DOMAINS, DomainRow
from replica.relay_log.location import RelayHead, RelayLocation

if TYPE_CHECKING:
    from pathlib import Path

HEAD_NAME = "relay.head"
MAGIC = b"RELAYHED"
VERSION = 1

BEGUN = FIRST_POSITION

_FIXED = struct.Struct("<8sIIIIQQHH")
_DOMAIN = DomainRow.packing()
_CRC = struct.Struct("<I")
_PAGE_BYTES = 4096
_FILE_BYTES = -(-(_FIXED.size + 0xFFFF + _DOMAIN.size * MAX_DOMAINS + _CRC.size) // _PAGE_BYTES) * _PAGE_BYTES
# The writer needs microseconds for a record. A CRC that stays wrong this long means damage.
_ATTEMPTS = 200
_PAUSE_S = 0.001


class Snapshot(NamedTuple):
    """Head record before its position is decoded into a `RelayHead`.

    `domains` holds the raw rows of the domain table.
    """

    file: int
    offset: int
    primary_file: str
    primary_position: int
    timestamp: int
    domains: bytes

    @property
    def head(self) -> RelayHead:
        return RelayHead(
            RelayLocation(self.file, self.offset),
            GtidPosition(tuple(Gtid(*row) for row in _DOMAIN.iter_unpack(self.domains))),
            BinlogPosition(self.primary_file, self.primary_position),
            self.timestamp,
        )


class HeadFile:
    """Writer of `relay.head`. The constructor allocates the disk space, and all methods pass OSErrors on."""

    def __init__(self, directory: Path) -> None:
        path = directory / HEAD_NAME
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self.file = NamedFile.of(self._descriptor, path)
        try:
            protect(self._descriptor, directory)
            os.posix_fallocate(self._descriptor, 0, _FILE_BYTES)
        except OSError:
            os.close(self._descriptor)
            raise

    def publish(self, snapshot: Snapshot) -> None:
        record = _encode(snapshot)
        if os.pwrite(self._descriptor, record, 0) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the only cause of a partial write

    def sync(self) -> None:
        """Make the last published record durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_head(directory: Path, *, attempts: int = _ATTEMPTS) -> RelayHead | None:
    """Return the last record; None if no replica has ever written here.

    Raises:
        RelayError: The record stays unreadable for all attempts.
    """
    try:
        descriptor = os.open(directory / HEAD_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        for _ in range(attempts):
            data = os.pread(descriptor, _PAGE_BYTES, 0).ljust(_FIXED.size, b"\0")  # only a power cut leaves less
            if not any(data[: _FIXED.size]):
                return None  # the writer is creating the file
            if _FIXED.unpack_from(data)[2] > _PAGE_BYTES:  # happens only with many domains
                data = os.pread(descriptor, _FILE_BYTES, 0)
            snapshot = _decode(data)
            if snapshot is not None:
                return snapshot.head
            time.sleep(_PAUSE_S)
    finally:
        os.close(descriptor)
    raise RelayError(
        f"{directory / HEAD_NAME} is damaged.",
        hint="Start the replica again: it rebuilds the file from the relay log.",
    )


def has_begun(directory: Path) -> bool:
    """Return True if the record has a position: the end of the log, or the settled start of a log without a group."""
    try:
        head = read_head(directory, attempts=1)
    except RelayError:
        return False
    return head is not None and bool(head.location.offset or head.primary.position == BEGUN)


def next_number(directory: Path) -> int:
    """Return the number of the first relay file of an empty log, after every number that was ever published here."""
    try:
        head = read_head(directory, attempts=1)  # no other process writes it
    except RelayError:
        return 1  # the record is damaged, and the writer replaces it
    return 1 if head is None else head.location.file + bool(head.location.offset)


def _encode(snapshot: Snapshot) -> bytes:
    name = snapshot.primary_file.encode("utf-8")
    length = _FIXED.size + len(name) + len(snapshot.domains) + _CRC.size
    content = b"".join(
        (
            _FIXED.pack(
                *(MAGIC, VERSION, length, snapshot.file, snapshot.timestamp, snapshot.offset),
                *(snapshot.primary_position, len(name), len(snapshot.domains) // _DOMAIN.size),
            ),
            name,
            snapshot.domains,
        )
    )
    return content + _CRC.pack(crc32(content))


def _decode(data: bytes) -> Snapshot | None:
    magic, version, length, file, timestamp, offset, position, name_length, domains = _FIXED.unpack_from(data)
    if magic == MAGIC and version != VERSION:
        raise RelayError(
            f"The relay log was written by another version of this program (head record {version}, known {VERSION}).",
            hint="Use the same version for the replica and for the readers of its relay log.",
        )
    expected = _FIXED.size + name_length + _DOMAIN.size * domains + _CRC.size
    if magic != MAGIC or length != expected or length > len(data):
        return None
    content = data[: length - _CRC.size]
    if _CRC.unpack_from(data, len(content))[0] != crc32(content):
        return None
    name_end = _FIXED.size + name_length
    return Snapshot(
        file, offset, content[_FIXED.size : name_end].decode("utf-8"), position, timestamp, content[name_end:]
    )
