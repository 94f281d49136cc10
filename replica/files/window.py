"""Part of a file in memory: the whole file if it can be mapped, otherwise a buffer that follows a stream.

A window has the bytes [start, end) of the file. `base` + offset is the address of the byte at that file offset. `more`
increases `end` and may release the bytes before `keep`. Views stay valid and are never overwritten: kept bytes move to
a new buffer. A buffer larger than MEMORY_BYTES, for one large transaction, is a mapped temporary file without a name,
which is deleted with its last view. A failing reader ends the stream; `fault` has its error until the bytes before it
are used.
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
    """A whole file, mapped. The file must not shrink while it is open: a read would make the operating system end the
    process.
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
