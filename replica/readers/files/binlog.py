"""Binlog file as a sequence of ranges: checked, whole event groups in pieces of a few megabytes.

`BinlogFile.ranges` yields `FileRange`s in the file's order, without a gap unless damage is skipped; together they have
every event. A range ends at the end of a group; a larger group gets its own range. Events that decoders refuse
(INCIDENT, unknown types) get their own range with their group, so that everything before them can be delivered. A group
without its end at the end of the file (the server crashed, or is writing) is the last range, with `whole` False.

Errors are raised after everything before them was delivered. The errors are a wrong checksum, an impossible length, a
truncated event, and an event of a group outside of any group. Files from before GTIDs (MariaDB 5 and MySQL 5.5) have
only events outside of groups. With `skip_damaged` the damaged group is dropped, and reading continues at the next one.
"""

from __future__ import annotations

import mmap
import os
import stat
from typing import TYPE_CHECKING, Final, Self

from replica.errors import MAY_READ, ConfigError, ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, FIRST_POSITION, HEADER_LENGTH
from replica.protocol.events.decode import FormatDescriptionEvent, decode_description
from replica.protocol.header import HEADER, EventHeader
from replica.readers.files.decrypted import Decrypted
from replica.readers.files.encryption import HEAD_BYTES, choose_cipher, find_encryption
from replica.readers.files.ranges import FileRange, Walk, relocated
from replica.readers.files.readers import (
    COMPRESSIONS,
    ByteSource,
    Decompressed,
    FileReader,
    MappedWindow,
    Prefixed,
    StreamWindow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.readers.files.decrypted import Algorithm
    from replica.readers.files.encryption import KeyRing
    from replica.readers.files.ranges import Damage
    from replica.readers.files.readers import Window

__all__ = ["RANGE_BYTES", "BinlogFile", "FileRange"]

RANGE_BYTES: Final = 8 << 20
MAX_DESCRIPTION_BYTES: Final = 4096
"""Maximal size of a FORMAT_DESCRIPTION event, which has a byte for each of at most 255 event types."""


class BinlogFile:
    """An open file; `open_binlog` makes it. Use it as a context manager, or `close` it."""

    def __init__(
        self, name: str, descriptor: int, window: Window, *, source: FileReader, size: int | None, seekable: bool
    ) -> None:
        self.name = name
        self.seekable = seekable
        """Whether ranges can be read repeatedly, and from any group's start: True for a plain file on disk."""
        self.damage: list[Damage] = []
        """Damage that `skip_damaged` has skipped so far."""
        self._descriptor = descriptor
        self._window = window
        self._source = source
        self._size = size
        self._used = False
        self.description = self._read_description()
        """First event of the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; its ranges stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def size(self) -> int | None:
        """Bytes on disk, or None if unknown (a pipe)."""
        return self._size

    @property
    def consumed(self) -> int:
        """Bytes on disk read so far; for a seekable file, use the offsets of its ranges."""
        return self._source.consumed

    def ranges(
        self,
        *,
        max_bytes: int = RANGE_BYTES,
        skip_damaged: bool = False,
        cut_at_ddl: bool = False,
        verify: bool = True,
        start: int = FIRST_POSITION,
        stop: int | None = None,
        description: FormatDescriptionEvent | None = None,
    ) -> Iterator[FileRange]:
        """Yield all ranges in order.

        `start`, `stop` and `description` select a part of a seekable file.

        Args:
            max_bytes: Maximal bytes of a range; a larger group gets its own range.
            skip_damaged: True to skip damaged groups, which `damage` lists.
            cut_at_ddl: True to make each group with a DDL statement its own range.
            verify: False to skip the checksums, for callers that only search for places to cut.
            start: Offset of the first range: the end of a range of an earlier run.
            stop: Offset at which to stop: the end of a range of an earlier run.
            description: The description of the range at `start`.

        Raises:
            ConfigError: A stream, a compressed or an encrypted file can be read only once, from its beginning.
        """
        if not self.seekable and (self._used or start != FIRST_POSITION or stop is not None):
            raise ConfigError(
                f"{self.name} can be read once, from its beginning: it is a stream, compressed, or encrypted."
            )
        self._used = True
        walk = Walk(
            self.name,
            self._window,
            description or self.description,
            start=start,
            stop=stop,
            max_bytes=max_bytes,
            cut_at_ddl=cut_at_ddl,
            verify=verify,
        )
        return walk.ranges(self.damage if skip_damaged else None)

    def _read_description(self) -> FormatDescriptionEvent:
        start = FIRST_POSITION + HEADER_LENGTH
        self._need(start)
        if bytes(self._window.view(0, FIRST_POSITION)) != BINLOG_MAGIC:
            raise ProtocolError(f"{self.name}: the compressed content is not a binlog file", offset=0)
        header = EventHeader._make(HEADER.unpack(self._window.view(FIRST_POSITION, start)))
        end = FIRST_POSITION + header.event_length
        if not HEADER_LENGTH < header.event_length <= MAX_DESCRIPTION_BYTES:
            raise ProtocolError(
                f"{self.name}: begins with an event of {header.event_length} bytes, which is not a FORMAT_DESCRIPTION",
                offset=FIRST_POSITION,
            )
        self._need(end)
        try:
            return decode_description(self._window.view(FIRST_POSITION, end))
        except ProtocolError as error:
            raise relocated(error, self.name, FIRST_POSITION) from None

    def _need(self, end: int) -> None:
        while self._window.end < end:
            if not self._window.more(0):
                raise self._window.fault or TruncatedError(
                    f"{self.name}: the file ends inside its first event, after {self._window.end} bytes",
                    offset=min(self._window.end, FIRST_POSITION),
                    hint="The server crashed while it created the file, or the copy is incomplete.",
                )


# `open_binlog` recognises files by their first bytes, never by name: plain binlogs (mapped if they are regular files),
# gzip, zstd and xz around them, and files that MariaDB encrypted.


STANDARD_INPUT: Final = "-"
_MAGIC_BYTES: Final = 6  # the longest magic, xz's
_MYSQL_ENCRYPTED: Final = b"\xfdbin"


def open_binlog(
    path: Path | str, keys: KeyRing | None = None, *, encryption_algorithm: Algorithm | None = None
) -> BinlogFile:
    """Open one binlog or relay log file; `-` is standard input.

    Args:
        path: The file.
        keys: The keys of files that MariaDB encrypted.
        encryption_algorithm: `cbc` or `ctr`; None detects it.

    Raises:
        ConfigError: The file cannot be read, or the key is missing or wrong.
        ProtocolError: The file is not a binlog.
    """
    name = str(path)
    if name == STANDARD_INPUT:
        return _open(os.dup(0), "standard input", keys, encryption_algorithm)
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}.", hint=MAY_READ) from error
    return _open(descriptor, name, keys, encryption_algorithm)


def _open(descriptor: int, name: str, keys: KeyRing | None, algorithm: Algorithm | None) -> BinlogFile:
    try:
        return _identify(descriptor, name, keys, algorithm)
    except BaseException:
        os.close(descriptor)
        raise


def _identify(descriptor: int, name: str, keys: KeyRing | None, algorithm: Algorithm | None) -> BinlogFile:
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{name} is a folder.", hint="Name the binlog files in it.")
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    magic, _ = _read_head(FileReader(descriptor), _MAGIC_BYTES)
    source = FileReader(descriptor, magic)
    compression = next((found for begins, found in COMPRESSIONS.items() if magic.startswith(begins)), None)
    if compression is None:
        _check_magic(magic, name)
    reader: ByteSource = source if compression is None else Decompressed(name, source, *compression)
    head, fault = _read_head(reader, HEAD_BYTES)
    encryption = find_encryption(head)
    if encryption is not None:
        plain = encryption.plain_head
        cipher = choose_cipher(name, encryption, keys, algorithm, head[len(plain) :])
        rest = Prefixed(head[len(plain) :], reader, fault)
        reader = Decrypted(plain, rest, cipher, encryption.description.checksum)
    elif compression is None and size is not None and os.lseek(descriptor, 0, os.SEEK_CUR) == len(head):
        memory = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        return BinlogFile(name, descriptor, MappedWindow(memory), source=source, size=size, seekable=True)
    else:
        reader = Prefixed(head, reader, fault)
    return BinlogFile(name, descriptor, StreamWindow(reader), source=source, size=size, seekable=False)


def _read_head(reader: ByteSource, size: int) -> tuple[bytes, ProtocolError | None]:
    """Read the first bytes; return them with the error that follows them, if any."""
    buffer = bytearray(size)
    fill = 0
    try:
        while fill < size and (count := reader.readinto(memoryview(buffer)[fill:])):
            fill += count
    except ProtocolError as error:
        return bytes(buffer[:fill]), error
    return bytes(buffer[:fill]), None


def _check_magic(head: bytes, name: str) -> None:
    if head.startswith(BINLOG_MAGIC):
        return
    if head.startswith(_MYSQL_ENCRYPTED):
        raise UnsupportedEventError(
            f"{name} was encrypted by MySQL", offset=0, hint="Fetch it from the server, which decrypts what it sends."
        )
    what = (
        "is empty"
        if not head
        else f"is not a binlog file: it begins with {head[:4].hex(' ')}, not {BINLOG_MAGIC.hex(' ')}"
    )
    raise ProtocolError(f"{name} {what}", offset=0)
