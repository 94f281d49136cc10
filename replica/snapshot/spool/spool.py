"""Spool folder beside the relay log, in which snapshot rows wait for a batch.

`Spool.store` keeps a block in memory or in a file, and `StoredBlock.load` returns it. A batch takes over the file of a
large block if no change affected its rows. A waiting block is a cache: it is not durable, and `open` removes the files
of an earlier process. The spool refuses a block before writing if the limit or the disk has no room. It only removes
files with its own names.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import struct
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import DiskFullError, RelayError
from replica.native.crc32 import checksum
from replica.protocol.constants import HEADER_LENGTH
from replica.protocol.events.decode import GtidEvent, decode, decode_description
from replica.protocol.header import parse_header
from replica.relay_log.directory.disk import FULL, free_bytes, write_all
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.location import relay_path
from replica.snapshot.rows.row_block import RowBlock
from replica.snapshot.spool.events import LastTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog

IN_MEMORY_BYTES: Final = 64 << 10
"""Size in bytes below which a block stays in memory, because a file would cost more than its rows. The number of tables
that are read ahead limits the number of such blocks.
"""
HELD_BYTES: Final = 64 << 20
"""Maximum total bytes of larger blocks in memory; a batch writes them into its own file."""
OWN_FILE_BYTES: Final = 4 << 20
"""Size from which a block is written to its own file at once, which a batch takes over instead of copying the rows. A
file costs an fsync, which is not worth it for smaller blocks.
"""
STRETCH_BYTES: Final = 16 << 20
"""Bytes of images in one part of a file: a fraction of a second of a task's work."""
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Only the query's user may read the rows."""

_WAITING: Final = re.compile(r"chunk-\d{6,}\.rows(\.new)?")
_NEW: Final = re.compile(r"batch-[0-9a-f-]+\.(rows|json)\.new")
_HEAD: Final = struct.Struct("<8sQQQQQQQ")
_MAGIC: Final = b"ROWBLOCK"
_LEAVE: Final = "Change nothing in the folder, and restart the query: no delivered rows are lost."


class Spool:
    """Spool folder and its free space. Thread-safe.

    Args:
        folder: Folder of the files.
        most_bytes: Maximum bytes of all files.
        min_free_bytes: Bytes that must stay free on the disk.
        held_bytes: Maximum bytes of blocks in memory.

    Attributes:
        finished: Batches that this process has finished, by the base names of their files.
    """

    def __init__(self, folder: Path, *, most_bytes: int, min_free_bytes: int, held_bytes: int = HELD_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._min_free_bytes = min_free_bytes
        self._held_bytes = held_bytes
        self._lock = threading.Lock()
        self.finished: set[str] = set()
        self._used = self._memory_used = 0
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Create the folder, and remove unfinished files and waiting blocks of an earlier process.

        Raises:
            RelayError: The folder cannot be created or read.
        """
        try:
            self.folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            for path in self.folder.iterdir():
                if _WAITING.fullmatch(path.name) or _NEW.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            self._used = sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())
        except OSError as error:
            raise spool_error(self.folder, error) from error

    @property
    def used(self) -> int:
        """Bytes of all files."""
        return self._used

    def has_room(self, size: int) -> bool:
        """Return True if `size` bytes may be read ahead. One half of the space is for waiting rows, the other for
        batches.
        """
        return not self._lacking(self._used + 2 * size)

    def reserve(self, size: int) -> None:
        """Reserve space for `size` bytes.

        Raises:
            DiskFullError: The limit or the disk has no room.
        """
        with self._lock:
            lacking = self._lacking(size)
            if lacking:
                raise DiskFullError(
                    f"{size} bytes of snapshot rows do not fit into {self.folder}: {lacking}.",
                    hint="Free space there, or raise relayMaxBytes: no delivered rows are lost; a restart continues.",
                )
            self._used += size

    def give_back(self, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._used -= size

    def store(self, block: RowBlock) -> StoredBlock:
        """Store a block in memory or in a file.

        Raises:
            DiskFullError: There is no room.
            RelayError: The file cannot be written.
        """
        size = _size(block)
        if size <= IN_MEMORY_BYTES or (size < OWN_FILE_BYTES and self._hold(size)):
            return StoredBlock(self, size, block.rows, block=block)
        self.reserve(size)
        path = self.folder / f"chunk-{next(self._numbers):06d}.rows"
        keys, key_ends = (block.keys[:0], block.key_ends[:0]) if _by_row(block) else (block.keys, block.key_ends)
        arrays = (block.ends, key_ends, block.images, keys)
        left_out = np.array(block.left_out, np.int64).tobytes()
        sizes = (*(array.nbytes for array in arrays), len(left_out), len(block.table_map))
        head = _HEAD.pack(_MAGIC, block.width, *sizes)
        parts = [np.ascontiguousarray(array).data for array in arrays]
        try:
            write_file(path, [head, *parts, left_out, block.table_map])
        except OSError as error:
            self.give_back(size)
            raise spool_error(self.folder, error) from error
        images = None
        if size >= OWN_FILE_BYTES:
            start = len(head) + block.ends.nbytes + key_ends.nbytes
            table = block.table_map, block.width, block.left_out
            images = StoredImages(start, checksum(parts[2]), _stretches(block), *table)
        return StoredBlock(self, size, block.rows, path=path, images=images)

    def remove(self, path: Path) -> None:
        """Remove a file with reserved bytes; a missing file is no error."""
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            self.give_back(size)

    def release_memory(self, size: int) -> None:
        """Release the memory of a block."""
        with self._lock:
            self._memory_used -= size

    def _hold(self, size: int) -> bool:
        """Reserve memory for a block; return False if the limit is reached."""
        with self._lock:
            holds = self._memory_used + size <= self._held_bytes
            self._memory_used += size if holds else 0
        return holds

    def _lacking(self, size: int) -> str:
        if self._used + size > self.most_bytes:
            return f"their limit is {self.most_bytes} bytes in all, and they take {self._used}"
        try:
            free = free_bytes(self.folder)
        except OSError:
            return ""  # the folder was removed, and writing raises the error
        if free - size < self._min_free_bytes:
            return f"the disk has {free} bytes free, of which {self._min_free_bytes} must stay free"
        return ""


class ImageStretch(NamedTuple):
    """Images of consecutive rows: bytes [start, end) of all images of a block, and the number of rows."""

    start: int
    end: int
    rows: int


class StoredImages(NamedTuple):
    """Images in the file of a block, one after the other from byte `start`, and their table map. `sum`: checksum of the
    images.
    """

    start: int
    sum: int
    stretches: tuple[ImageStretch, ...]
    table_map: bytes
    width: int
    left_out: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of the images."""
        return self.stretches[-1].end if self.stretches else 0


class StoredBlock:
    """Block that waits in memory or in a file. Thread-safe.

    `images`: location of the images in a file that a batch may take over; None for other blocks. After `take`, the file
    stays until the batch calls `hand_over` or `return_file`, even if the block is dropped.
    """

    def __init__(
        self,
        spool: Spool,
        size: int,
        rows: int,
        *,
        block: RowBlock | None = None,
        path: Path | None = None,
        images: StoredImages | None = None,
    ) -> None:
        self.size = size
        self.rows = rows
        self.images = images
        self._spool = spool
        self._block = block
        self._path = path
        self._lock = threading.Lock()
        self._taken = self._dropped = False

    @property
    def lost(self) -> bool:
        """Whether the block's file is missing or has another size."""
        return self._path is not None and not self._exists(self._path)

    def load(self) -> RowBlock | None:
        """Return the block; None if its file is missing or damaged, so that its rows must be read again."""
        if self._block is not None:
            return self._block
        try:
            data = np.fromfile(self._path, np.uint8) if self._path else np.empty(0, np.uint8)
        except OSError:
            return None
        return _block(data)

    def mapped(self) -> RowBlock:
        """Return the block as a mapping of its file, whose memory the system manages. No other process may change the
        file.

        Raises:
            RelayError: The file is missing or damaged.
        """
        if self._block is not None:
            return self._block
        try:
            with open(self._path or "", "rb") as file:  # noqa: PTH123  (None is no path)
                block = _block(np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8))
        except (OSError, ValueError) as error:
            raise RelayError(f"{self._path} cannot be read: {error}.", hint=_LEAVE) from None
        if block is None:
            raise RelayError(f"{self._path} is damaged.", hint=_LEAVE)
        return block

    def drop(self) -> None:
        """Remove the block, unless a batch has taken its file; a second call has no effect."""
        with self._lock:
            self._dropped = True
            if not self._taken:
                self._remove()

    def take(self) -> bool:
        """Take the file for a batch; return False if it is missing."""
        with self._lock:
            self._taken = self._path is not None and self._exists(self._path)
            return self._taken

    def return_file(self) -> None:
        """Return the file of a batch that is not written."""
        with self._lock:
            self._taken = False
            if self._dropped:
                self._remove()

    def hand_over(self) -> None:
        """Leave the file to the batch permanently."""
        with self._lock:
            self._path, self._taken = None, False

    def sync(self) -> None:
        """Make the taken file durable; OSErrors are passed on."""
        descriptor = os.open(self._path or "", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def move(self, path: Path) -> None:
        """Rename the taken file; OSErrors are passed on."""
        with self._lock:
            if self._path is not None:
                self._path = self._path.rename(path)

    def _exists(self, path: Path) -> bool:
        try:
            return path.stat().st_size == self.size
        except OSError:
            return False

    def _remove(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._spool.give_back(self.size)
        elif self._block is not None and self.size > IN_MEMORY_BYTES:
            self._spool.release_memory(self.size)
        self._block = self._path = None


def write_file(path: Path, parts: Sequence[bytes | memoryview], *, durable: bool = False) -> None:
    """Write a file of the spool with the bytes of all parts; an existing file is replaced.

    With `durable`, the file is synced to disk. After an OSError, no file remains.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        for part in parts:
            write_all(descriptor, part)
        if durable:
            os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def spool_error(folder: Path, error: OSError) -> RelayError:
    """Return the error for an OSError in the spool folder: a DiskFullError if space is lacking, else a RelayError."""
    what = f"Snapshot rows cannot be stored in {folder}: {error.strerror or error}."
    if error.errno in FULL:
        return DiskFullError(what, hint="Free space there, or raise the quota; a restart continues.")
    return RelayError(what, hint="Repair the disk or the folder, then start again: no delivered rows are lost.")


def _stretches(block: RowBlock) -> tuple[ImageStretch, ...]:
    """Divide images into parts of about the same size."""
    total = int(block.ends[-1]) if block.rows else 0
    count = -(-total // STRETCH_BYTES)
    borders = [total * number // count for number in range(1, count + 1)]
    rows = np.unique(np.searchsorted(block.ends, borders) + 1).tolist()
    made, first, start = [], 0, 0
    for last in rows:
        end = int(block.ends[last - 1])
        made.append(ImageStretch(start, end, last - first))
        first, start = last, end
    return tuple(made)


def _by_row(block: RowBlock) -> bool:
    """Return True if the keys are the images, which are then stored once."""
    return block.keys is block.images


def _size(block: RowBlock) -> int:
    keys = () if _by_row(block) else (block.keys, block.key_ends)
    arrays = (block.images, block.ends, *keys)
    return _HEAD.size + len(block.table_map) + 8 * len(block.left_out) + sum(array.nbytes for array in arrays)


def _block(data: npt.NDArray[np.uint8]) -> RowBlock | None:
    """Return the block in a file's bytes, without a copy; None if the file is damaged."""
    if len(data) < _HEAD.size:
        return None
    magic, width, *sizes = _HEAD.unpack_from(data.data)
    if magic != _MAGIC or len(data) != _HEAD.size + sum(sizes):
        return None
    at = _HEAD.size
    parts = []
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    ends, key_ends, images, keys, left_out, table_map = parts
    if len(key_ends) < len(ends):
        keys, key_ends = images, ends
    numbers = tuple(np.frombuffer(left_out.tobytes(), np.int64).tolist())
    return RowBlock(table_map.tobytes(), width, images, ends.view(np.int64), keys, key_ends.view(np.int64), numbers)


def transaction_at(log: RelayLog, head: RelayHead) -> LastTransaction:
    """Return the GTID and commit time of the last transaction that ends at or before `head`; zeros if there is none."""
    first, end = log.oldest(), head.location
    if not end.offset or log.is_empty(first, end):
        return LastTransaction()
    begin = log.last_group(end)
    path = relay_path(log.directory, begin.file)
    description = decode_description(read_file_head(path).format)
    with path.open("rb") as file:
        length = parse_header(memoryview(os.pread(file.fileno(), HEADER_LENGTH, begin.offset))).event_length
        event = decode(memoryview(os.pread(file.fileno(), length, begin.offset)), description)
    return LastTransaction(event.gtid, head.timestamp) if isinstance(event, GtidEvent) else LastTransaction()
