"""Byte streams of binlog files, and the window through which they are read.

A byte stream is a file descriptor or its decompressed content (.gz, .zst and .xz, also with several members). A window
has the bytes of the stream that are still needed; views on them stay valid and are never overwritten.

A reader raises ProtocolError after the last readable byte. Memory: the decompressor's history and INPUT_BYTES; a file
that needs more history than HISTORY_BYTES is an error.

At damage, a decompressor discards its output since the last request. A seekable file is therefore decompressed a second
time, byte by byte near the damage, so that no byte before the damage is lost. A pipe loses up to STEP_BYTES.
"""

from __future__ import annotations

import io
import lzma
import mmap
import os
import tempfile
import zlib
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from replica.errors import ConfigError, ProtocolError, TruncatedError
from replica.native.arrays import address

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

INPUT_BYTES: Final = 256 << 10
STEP_BYTES: Final = 256 << 10
"""Bytes requested from a decompressor at once."""
HISTORY_BYTES: Final = 256 << 20
"""Maximal history of a decompressor in bytes. `zstd --ultra -22 --long=27` needs 128 MiB, `xz -9` 65 MiB, gzip 32 KiB.
"""
_GZIP_WRAPPER: Final = 31  # zlib's code for a gzip header


class FileReader(io.RawIOBase):
    """Reader of a file descriptor, which the caller owns.

    `head` has bytes that were already read to identify the file.
    """

    def __init__(self, descriptor: int, head: bytes = b"") -> None:
        self._descriptor = descriptor
        self._head = head
        self.consumed = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any, /) -> int:
        if self._head:
            count = min(len(self._head), len(target))
            target[:count] = self._head[:count]
            self._head = self._head[count:]
        else:
            count = os.readv(self._descriptor, [target])
        self.consumed += count
        return count

    def rewind(self) -> bool:
        """Return to the file's first byte; False if that is impossible."""
        try:
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        except OSError:
            return False
        self._head, self.consumed = b"", 0
        return True


class Prefixed:
    """Reader with bytes that were already read to identify the file, and the `fault` that ended that read, if any."""

    def __init__(self, head: bytes, rest: ByteSource, fault: ProtocolError | None) -> None:
        self._head = memoryview(head)
        self._rest = rest
        self._fault = fault

    def readinto(self, target: memoryview, /) -> int:
        if not self._head and self._fault is not None:
            raise self._fault
        if not self._head:
            return self._rest.readinto(target)
        count = min(len(self._head), len(target))
        target[:count] = self._head[:count]
        self._head = self._head[count:]
        return count


class _Decompressor(Protocol):
    """Decompressor of one member, with the interface of the lzma module."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """zlib's decompressor with lzma's interface."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_GZIP_WRAPPER)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail or data, max_length)


class _Members:
    """Reader of consecutive members, as `gzip` and `xz` do; zeros may pad the end."""

    def __init__(self, source: FileReader, make: Callable[[], _Decompressor]) -> None:
        self._source = source
        self._make = make
        self._member = make()
        self._input = b""

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof:
                if not self._next():
                    return b""
            elif self._member.needs_input and not self._input:
                self._input = self._source.read(INPUT_BYTES)
                if not self._input:
                    raise EOFError
            data, self._input = self._input, b""
            made = self._member.decompress(data, size)
            if made:
                return made

    def _next(self) -> bool:
        data = self._member.unused_data.lstrip(b"\0")
        while not data:
            data = self._source.read(INPUT_BYTES)
            if not data:
                return False
            data = data.lstrip(b"\0")
        self._member, self._input = self._make(), data
        return True


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _gzip(source: FileReader) -> _Readable:
    return _Members(source, _Gzip)


def _xz(source: FileReader) -> _Readable:
    return _Members(source, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=HISTORY_BYTES))


def _zstd(source: FileReader) -> _Readable:
    stream: _Readable = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")
    return stream


COMPRESSIONS: Final[dict[bytes, tuple[str, Callable[[FileReader], _Readable]]]] = {
    b"\x1f\x8b": ("gzip", _gzip),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
    b"\xfd7zXZ\x00": ("xz", _xz),
}
"""Decompressors by the magic bytes at the start of the file."""
_DAMAGE: Final = (EOFError, OSError, zlib.error, lzma.LZMAError)


class Decompressed:
    """Reader of the content of a compressed file."""

    def __init__(self, name: str, source: FileReader, kind: str, start: Callable[[FileReader], _Readable]) -> None:
        self._name = name
        self._source = source
        self._kind = kind
        self._start = start
        self._stream = start(source)
        self._offset = 0
        self._fault: ProtocolError | None = None

    def readinto(self, target: memoryview, /) -> int:
        if self._fault is not None:
            raise self._fault
        try:
            made = self._stream.read(min(len(target), STEP_BYTES))
        except _DAMAGE as error:
            made = self._again(error, min(len(target), STEP_BYTES))
        target[: len(made)] = made
        self._offset += len(made)
        return len(made)

    def _again(self, error: Exception, size: int) -> bytes:
        """Read the delivered bytes once more, then continue byte by byte up to the damage."""
        made = bytearray()
        if self._source.rewind():
            self._stream = self._start(self._source)
            try:
                left = self._offset
                while left:
                    left -= len(self._stream.read(min(left, STEP_BYTES)))
                while len(made) < size and (byte := self._stream.read(1)):
                    made += byte
            except _DAMAGE as again:
                error = again
        self._fault = self._error(error, self._offset + len(made))
        if not made:
            raise self._fault
        return bytes(made)

    def _error(self, error: Exception, offset: int) -> ProtocolError:
        if isinstance(error, EOFError) or "Truncated" in str(error):
            return TruncatedError(
                f"{self._name}: the {self._kind} file ends too early",
                offset=offset,
                hint="The copy is incomplete, or still being written.",
            )
        return ProtocolError(
            f"{self._name}: the {self._kind} file is damaged: {error}",
            offset=offset,
            hint=f"Check it with `{self._kind} -t`; the offset counts decompressed bytes.",
        )


# A window has the bytes [start, end) of the file. `base` + offset is the address of the byte at that file offset.
# `more` increases `end` and may release the bytes before `keep`. Views stay valid and are never overwritten: kept
# bytes move to a new buffer. A buffer larger than MEMORY_BYTES, for one large transaction, is a mapped temporary file
# without a name, which is deleted with its last view. A failing reader ends the stream; `fault` has its error until
# the bytes before it are used.


READ_BYTES: Final = 1 << 20
"""Bytes requested from a reader at once."""
BUFFER_BYTES: Final = 10 << 20
"""Bytes of a range of the usual size, with the bytes read after it."""
MEMORY_BYTES: Final = 64 << 20
"""Maximal bytes of a buffer in memory: eight ranges of the usual size. A larger buffer moves to disk."""
GROWTH_BYTES: Final = 256 << 20
"""Bytes reserved on disk at once."""


class ByteSource(Protocol):
    """Source of a stream."""

    def readinto(self, target: memoryview, /) -> int:
        """Read up to len(target) bytes into `target`; return 0 at the end.

        Raises:
            ProtocolError: The source is damaged; raised after the last good byte.
        """


class Window(Protocol):
    end: int
    fault: ProtocolError | None

    @property
    def base(self) -> int:
        """Address of the file's first byte, or the address that it would have."""

    def more(self, keep: int) -> bool:
        """Read more bytes; return False at the end of the file. Bytes before `keep` may be released."""

    def view(self, begin: int, end: int) -> memoryview:
        """Return the bytes [begin, end), read-only; their content never changes."""


class MappedWindow:
    """A whole file, mapped.

    The file must not shrink while it is open: the operating system would end the process at the next read.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._bytes = np.frombuffer(memory, np.uint8)
        self.base = address(self._bytes)
        self.end = len(self._bytes)
        self.fault: ProtocolError | None = None

    def more(self, keep: int) -> bool:  # noqa: ARG002  (the whole file is mapped)
        return False

    def view(self, begin: int, end: int) -> memoryview:
        return self._bytes[begin:end].data.toreadonly()


class StreamWindow:
    """Buffer that follows a reader."""

    def __init__(self, reader: ByteSource) -> None:
        self._reader = reader
        self._buffer = np.empty(BUFFER_BYTES, np.uint8)
        self._file: IO[bytes] | None = None
        self._shared = False
        self._start = self.end = 0
        self.fault: ProtocolError | None = None
        self._ended = False

    @property
    def base(self) -> int:
        return address(self._buffer) - self._start

    def more(self, keep: int) -> bool:
        if self._ended:
            return False
        self._make_room(keep)
        fill = self.end - self._start
        target = self._buffer.data[fill : fill + READ_BYTES]
        try:
            count = self._reader.readinto(target)
        except ProtocolError as error:
            self.fault, count = error, 0
        self.end += count
        self._ended = count == 0
        return not self._ended

    def view(self, begin: int, end: int) -> memoryview:
        self._shared = True
        return self._buffer[begin - self._start : end - self._start].data.toreadonly()

    def _make_room(self, keep: int) -> None:
        """Make space for at least READ_BYTES after `end`, without moving bytes of a view."""
        if len(self._buffer) - (self.end - self._start) >= READ_BYTES:
            return
        needed = self.end - keep + READ_BYTES
        if keep == self._start and self._file is not None:
            self._buffer = _map(self._file, needed + GROWTH_BYTES)
            return
        kept = self._buffer[keep - self._start : self.end - self._start]
        # Twice the needed size, so that a large transaction is copied a few times, not at each read.
        capacity = BUFFER_BYTES if needed <= BUFFER_BYTES else 2 * needed
        if self._shared or capacity > len(self._buffer):
            self._file = _temporary() if capacity > MEMORY_BYTES else None
            target = np.empty(capacity, np.uint8) if self._file is None else _map(self._file, capacity)
            target[: len(kept)] = kept
            self._buffer, self._shared = target, False
        else:
            self._buffer[: len(kept)] = kept.copy()
        self._start = keep


def _temporary() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="mariadb-replica-")


def _map(file: IO[bytes], size: int) -> NDArray[np.uint8]:
    """Map the file after enlarging it; earlier maps show the same bytes."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)  # on a full disk, writing to the map would end the process
    except OSError as error:
        raise ConfigError(
            f"No room for a transaction of more than {size} bytes in {tempfile.gettempdir()}: {error.strerror}.",
            hint="Set TMPDIR to a folder with more room.",
        ) from error
    return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
