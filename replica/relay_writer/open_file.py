"""Current relay file with its index: two descriptors and the writes to them.

`OpenFile` creates both files, appends group bytes and index entries, and hands the descriptors to another thread in
`seal`. OSErrors are passed on to the writer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any, NoReturn

from replica.errors import RelayError
from replica.relay_log.directory.disk import disk_error, protect, write_all
from replica.relay_log.directory.lock import NamedFile
from replica.relay_log.files.index import encode_header, plain_entries
from replica.relay_log.location import index_path, relay_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
# An fsync takes time in proportion to the bytes that are still in memory, and an ACK may wait for it. `begin_writing`
# therefore starts the write-back early. The call is only a hint: it makes nothing durable, and errors appear at the
# fsync. On a system without the call, `begin_writing` does nothing.


_WRITE = 2  # SYNC_FILE_RANGE_WRITE: start the write-back without waiting


def _find_sync_file_range() -> Any:
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


_sync_file_range = _find_sync_file_range()


def begin_writing(descriptor: int, begin: int, end: int) -> None:
    """Start to write bytes [begin, end) of the file to disk."""
    if _sync_file_range is not None and end > begin:
        _sync_file_range(descriptor, begin, end - begin, _WRITE)


WRITE_BYTES = 8 << 20  # smaller values cause small requests, larger ones leave more to the fsync
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MODE = 0o600  # mode until `protect` is called


class OpenFile:
    """Relay file that is created with its head; `data_start` is the offset of the first group."""

    def __init__(self, directory: Path, number: int, head: bytes) -> None:
        self.number = number
        self.data_start = self._reserved = self._begun = len(head)
        self.plain = True
        """Whether no entry has a mark of XA groups or of sequence numbers that went back."""
        self._index = os.open(index_path(directory, number), _FLAGS | os.O_APPEND, _MODE)
        self._file = -1
        try:
            protect(self._index, directory)
            write_all(self._index, encode_header())
            self._file = os.open(relay_path(directory, number), _FLAGS, _MODE)
            protect(self._file, directory)
            write_all(self._file, head)
            self.file = NamedFile.of(self._file, relay_path(directory, number))
            self.index = NamedFile.of(self._index, index_path(directory, number))
        except OSError:
            self.close()
            raise

    def append(self, span: memoryview, offset: int) -> None:
        if offset + len(span) > self._reserved:
            self._reserved = reserve(self._file, self._reserved)
        while len(span):
            written = os.pwrite(self._file, span, offset)
            span, offset = span[written:], offset + written
        if offset - self._begun >= WRITE_BYTES:
            begin_writing(self._file, self._begun, offset)
            self._begun = offset

    def add_entries(self, entries: memoryview) -> None:
        write_all(self._index, entries)
        self.plain = self.plain and plain_entries(entries)

    def cut(self, length: int) -> None:
        """Cut the file to `length`, which also releases the reserved space."""
        os.ftruncate(self._file, length)

    def cut_open_group(self, length: int) -> None:
        if os.fstat(self._file).st_size > length:  # truncating to the same length would release the reserved space
            os.ftruncate(self._file, length)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def seal(self, entry: bytes) -> Callable[[bool], None]:
        """Return a function that syncs the data and then writes the sealing entry; another thread runs it.

        The function owns the file's descriptors.
        """
        file, index = self._file, self._index

        def run(wanted: bool) -> None:  # noqa: FBT001
            try:
                if wanted:
                    os.fdatasync(file)
                    write_all(index, entry)
                    os.fdatasync(index)
            finally:
                os.close(file)
                os.close(index)

        return run

    def close(self) -> None:
        os.close(self._index)
        if self._file >= 0:
            os.close(self._file)


# Disk space is reserved after the end of a growing file, without changing its length (Linux fallocate,
# FALLOC_FL_KEEP_SIZE). Reserved blocks make an append a third cheaper (ext4: 0.17 instead of 0.24 CPU seconds per GB).
# Truncating the file to its length releases the rest. Nothing is reserved if the file system does not support it or has
# little space. A reservation is optional, and a full disk causes an error when the bytes are written.

RESERVE_BYTES = 16 << 20  # more saves nothing; a small file occupies this space while it is open

_LITTLE_BYTES = 8 * RESERVE_BYTES  # with less free space, nothing is reserved
_KEEP_SIZE = 1


def _find_fallocate() -> Any:
    function = getattr(ctypes.CDLL(None), "fallocate64", None) or getattr(ctypes.CDLL(None), "fallocate", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


_fallocate = _find_fallocate()


def reserve(descriptor: int, offset: int) -> int:
    """Reserve RESERVE_BYTES from `offset`; return the offset up to which no further call is needed."""
    if _fallocate is not None and _free_bytes(descriptor) > _LITTLE_BYTES:
        _fallocate(descriptor, _KEEP_SIZE, offset, RESERVE_BYTES)
    return offset + RESERVE_BYTES


def _free_bytes(descriptor: int) -> int:
    try:
        status = os.fstatvfs(descriptor)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


# `LogFailure.error` is None while the log is usable. Otherwise it is one typed error, also for an error of the disk.


class LogFailure:
    """First error of one relay log; `error` is None while there is none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.error: RelayError | None = None

    def check(self) -> None:
        """Raise a copy of the error, which gets its own traceback."""
        if self.error is not None:
            raise type(self.error)(self.error.message, hint=self.error.hint)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Record errors that occur inside the block."""
        try:
            yield
        except OSError as error:
            self.fail(error)
        except RelayError as error:
            self.error = error
            raise

    def fail(self, error: OSError) -> NoReturn:
        """Record an error of the disk and raise it as a typed error."""
        self.error = disk_error(self.directory, error)
        raise self.error from error
