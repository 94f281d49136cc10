"""Byte streams for window.py: a file descriptor, or its decompressed content (.gz, .zst, .xz, also with several
members).

A reader raises ProtocolError after the last readable byte. Memory: the decompressor's history and INPUT_BYTES; a file
that needs more history than HISTORY_BYTES is an error.

A decompressor that meets damage discards its output since the last request. So a seekable file is decompressed a second
time, near the damage byte by byte, and no byte before the damage is lost. A pipe loses up to STEP_BYTES.
"""

from __future__ import annotations

import io
import lzma
import os
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from replica.errors import ProtocolError, TruncatedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.files.window import ByteSource

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
