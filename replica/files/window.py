"""The part of a file that is in memory: all of it where it can be mapped, else a buffer that moves along with a stream.

A window holds the bytes [start, end) of the file, addressed by their offset: `base` + offset is the address. `more`
makes `end` grow and may give up what stands before `keep`. Views that were given out stay valid and are never written
again: what is kept moves to a new buffer. A buffer larger than MEMORY_BYTES (one transaction is that large) lies in a
temporary file, mapped, that has no name and goes with its last view.

A failing reader ends the stream: its error waits in `fault` until what was read before it has been used.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import IO, TYPE_CHECKING, Final, Protocol

import numpy as np

from replica.errors import ConfigError, ProtocolError
from replica.native.arrays import address

if TYPE_CHECKING:
    from numpy.typing import NDArray

READ_BYTES: Final = 1 << 20
"""Asked of a reader at once."""
BUFFER_BYTES: Final = 10 << 20
"""A range of the usual size and what was read behind it."""
MEMORY_BYTES: Final = 64 << 20
"""A buffer may be this large before it moves to disk: eight ranges of the usual size."""
GROWTH_BYTES: Final = 256 << 20
"""What is reserved on disk at once."""


class ByteSource(Protocol):
    """The source of a stream."""

    def readinto(self, target: memoryview, /) -> int:
        """Put up to len(target) bytes there; 0 at the end. Errors are ProtocolError, after the last good byte."""


class Window(Protocol):
    end: int
    fault: ProtocolError | None

    @property
    def base(self) -> int:
        """The address where the file's first byte is or would be in memory."""

    def more(self, keep: int) -> bool:
        """Read on; False at the end of the file. Bytes before `keep` may go."""

    def view(self, begin: int, end: int) -> memoryview:
        """Return the bytes [begin, end), read-only; they stay as they are."""


class MappedWindow:
    """A whole file, mapped. It must not shrink while it is open: the operating system ends a process that reads on."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._bytes = np.frombuffer(memory, np.uint8)
        self.base = address(self._bytes)
        self.end = len(self._bytes)
        self.fault: ProtocolError | None = None

    def more(self, keep: int) -> bool:  # noqa: ARG002  (everything is there)
        return False

    def view(self, begin: int, end: int) -> memoryview:
        return self._bytes[begin:end].data.toreadonly()


class StreamWindow:
    """A buffer that follows a reader."""

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
        """Make room for at least READ_BYTES behind `end`, which moves no byte that was given out."""
        if len(self._buffer) - (self.end - self._start) >= READ_BYTES:
            return
        needed = self.end - keep + READ_BYTES
        if keep == self._start and self._file is not None:
            self._buffer = _map(self._file, needed + GROWTH_BYTES)
            return
        kept = self._buffer[keep - self._start : self.end - self._start]
        # Twice what is kept, so that a large transaction is copied a few times, not once a read.
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
    """Map the file made larger; earlier maps of it show the same bytes."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)  # without the room, writing to the map would end the process
    except OSError as error:
        raise ConfigError(
            f"No room for a transaction of more than {size} bytes in {tempfile.gettempdir()}: {error.strerror}.",
            hint="Set TMPDIR to a folder with more room.",
        ) from error
    return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
