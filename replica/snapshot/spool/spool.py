"""The files that rows of tables wait in, beside the relay log: how they are written, what they may take, and their end.

In: a folder of our own; blocks of rows as they were read. Out: the blocks again, or the file of a large one, which a
batch takes as it is if nothing changed its rows. A block that waits for its turn is a cache: it is not made durable,
and a start removes what an earlier life left. Small ones stay in memory, as many as fit. Refused before anything is
written: what the limit or the disk has no room for. Only files with our names are ever removed.
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
from replica.native.kernel_checksum import checksum
from replica.relay_log.directory.disk import FULL, free_bytes, write_all
from replica.snapshot.rows.row_block import RowBlock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

IN_MEMORY_BYTES: Final = 64 << 10
"""A block below is kept in memory: there are as many as tables are read ahead, and a file costs more than its rows."""
HELD_BYTES: Final = 64 << 20
"""Larger ones are kept in memory up to so much together: a batch writes them into its own file."""
OWN_FILE_BYTES: Final = 4 << 20
"""A block from here on is written to a file at once, which a batch takes over instead of writing the rows again. A file
of its own costs an fsync: for less it is not worth that."""
STRETCH_BYTES: Final = 16 << 20
"""The images of one stretch of a file: a task's work of a fraction of a second."""
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Rows of any table: for the user of the query alone."""

_WAITING: Final = re.compile(r"chunk-\d{6,}\.rows(\.new)?")
_NEW: Final = re.compile(r"batch-[0-9a-f-]+\.(rows|json)\.new")
_HEAD: Final = struct.Struct("<8sQQQQQQQ")
_MAGIC: Final = b"ROWBLOCK"
_LEAVE: Final = "Leave the folder to the query, and start it again: nothing that was delivered is lost."


class Spool:
    """The folder, and the room in it. Thread-safe.

    `most_bytes`: what its files may take in all; `min_free_bytes`: what they leave free on the disk; `held_bytes`: what
    stays in memory. `finished` has the batches that this process has written, by the names of their files.
    """

    def __init__(self, folder: Path, *, most_bytes: int, min_free_bytes: int, held_bytes: int = HELD_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._min_free_bytes = min_free_bytes
        self._held_bytes = held_bytes
        self._lock = threading.Lock()
        self.finished: set[str] = set()
        self._used = self._held = 0
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Make the folder, and remove what an earlier life left half done or as a cache.

        Raises:
            RelayError: the folder cannot be made or read.
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
        """The bytes that its files take."""
        return self._used

    def has_room(self, size: int) -> bool:
        """Tell whether so many bytes may be read ahead: what waits takes half, and the other half what is delivered."""
        return not self._lacking(self._used + 2 * size)

    def reserve(self, size: int) -> None:
        """Take room for so many bytes.

        Raises:
            DiskFullError: there is none, by the limit or on the disk.
        """
        with self._lock:
            lacking = self._lacking(size)
            if lacking:
                raise DiskFullError(
                    f"{size} bytes of rows that were read do not fit into {self.folder}: {lacking}.",
                    hint="Free space there, or raise relayMaxBytes: what was delivered stays, and a restart goes on.",
                )
            self._used += size

    def give_back(self, size: int) -> None:
        """Count bytes as free that were reserved."""
        with self._lock:
            self._used -= size

    def store(self, block: RowBlock) -> StoredBlock:
        """Keep a block until it is loaded: in memory, or in a file.

        Raises:
            DiskFullError: there is no room.
            RelayError: it cannot be written.
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
        """Remove a file of ours that was reserved for; one that is gone is no error."""
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            self.give_back(size)

    def let_go(self, size: int) -> None:
        """Count memory as free that a block took."""
        with self._lock:
            self._held -= size

    def _hold(self, size: int) -> bool:
        """Take memory for a block, if it is not too much together."""
        with self._lock:
            holds = self._held + size <= self._held_bytes
            self._held += size if holds else 0
        return holds

    def _lacking(self, size: int) -> str:
        if self._used + size > self.most_bytes:
            return f"they may take {self.most_bytes} bytes in all, and take {self._used}"
        try:
            free = free_bytes(self.folder)
        except OSError:
            return ""  # the folder was removed: writing says so
        if free - size < self._min_free_bytes:
            return f"the disk has {free} bytes free, of which {self._min_free_bytes} stay free"
        return ""


class ImageStretch(NamedTuple):
    """Images of neighbouring rows: their bytes [start, end) among all images of a block, and how many rows."""

    start: int
    end: int
    rows: int


class StoredImages(NamedTuple):
    """The images in the file of a block, one behind the other from byte `start` on, and what they are images of.

    `sum`: their checksum.
    """

    start: int
    sum: int
    stretches: tuple[ImageStretch, ...]
    table_map: bytes
    width: int
    left_out: tuple[int, ...]

    @property
    def size(self) -> int:
        """Their bytes."""
        return self.stretches[-1].end if self.stretches else 0


class StoredBlock:
    """A block that waits, in memory or in a file. Thread-safe.

    `images`: where they lie in a file that a batch may take; None for other blocks. From `take` on the file is not
    removed, even if the block is dropped, until the batch keeps it for good or lets it go.
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
        """Whether its file is gone, or not what was written."""
        return self._path is not None and not self._is_there(self._path)

    def load(self) -> RowBlock | None:
        """Return the block; None where its file is gone or damaged: its rows are read again."""
        if self._block is not None:
            return self._block
        try:
            data = np.fromfile(self._path, np.uint8) if self._path else np.empty(0, np.uint8)
        except OSError:
            return None
        return _block(data)

    def mapped(self) -> RowBlock:
        """Return the block as the file holds it, which no one but us may touch; its memory is the system's.

        Raises:
            RelayError: the file is gone, or damaged.
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
        """Remove it, unless a batch has taken its file; this may be called twice."""
        with self._lock:
            self._dropped = True
            if not self._taken:
                self._remove()

    def take(self) -> bool:
        """Take the file for a batch; tell whether it is there."""
        with self._lock:
            self._taken = self._path is not None and self._is_there(self._path)
            return self._taken

    def let_go(self) -> None:
        """Give the file back, of a batch that is not written."""
        with self._lock:
            self._taken = False
            if self._dropped:
                self._remove()

    def keep(self) -> None:
        """Leave the file to the batch for good."""
        with self._lock:
            self._path, self._taken = None, False

    def sync(self) -> None:
        """Make the file durable that was taken; an OSError is raised as it comes."""
        descriptor = os.open(self._path or "", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def move(self, path: Path) -> None:
        """Give the file that was taken another name; an OSError is raised as it comes."""
        with self._lock:
            if self._path is not None:
                self._path = self._path.rename(path)

    def _is_there(self, path: Path) -> bool:
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
            self._spool.let_go(self.size)
        self._block = self._path = None


def write_file(path: Path, parts: Sequence[bytes | memoryview], *, durable: bool = False) -> None:
    """Write a new file of ours; an OSError is raised as it comes, and leaves no file."""
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
    """Make the error for an `OSError` met in the spool's folder: DiskFullError, or RelayError for all others."""
    what = f"Rows that were read cannot be kept in {folder}: {error.strerror or error}."
    if error.errno in FULL:
        return DiskFullError(what, hint="Free space there, or raise the quota; a restart goes on.")
    return RelayError(what, hint="Repair the disk or the folder, then start again: nothing that was delivered is lost.")


def _stretches(block: RowBlock) -> tuple[ImageStretch, ...]:
    """Cut images into stretches of about the same size."""
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
    """Tell whether its keys are its images, which are kept once."""
    return block.keys is block.images


def _size(block: RowBlock) -> int:
    keys = () if _by_row(block) else (block.keys, block.key_ends)
    arrays = (block.images, block.ends, *keys)
    return _HEAD.size + len(block.table_map) + 8 * len(block.left_out) + sum(array.nbytes for array in arrays)


def _block(data: npt.NDArray[np.uint8]) -> RowBlock | None:
    """Return what a file holds, without a copy; None where it is damaged."""
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
