"""The relay log's one writer: appends complete and half-received groups, and knows where the last complete one ends.

In: spans of group bytes that a kernel has checked and delimited, with the shared `StreamState`. Out: relay files in
MariaDB's binlog format, their sidecars, the published head. A new file begins when the primary's file does, and at a
group end beyond `max_file_bytes`. A file that is complete is sealed in the background: its data reaches the disk before
its sidecar says so. After an error while writing it refuses everything; opening the directory again recovers that.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from replica.errors import ProtocolError, RelayError
from replica.protocol.format_description import announced_checksum
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay import slots
from replica.relay.file_head import encode_file_head, file_identity
from replica.relay.head import HeadFile, Snapshot
from replica.relay.index import SEALED_FLAG, IndexEntry, encode_entry, encode_header, sync_directory
from replica.relay.kernel_deframe import UNORDERED_FLAG, XA_FLAG
from replica.relay.location import RelayHead, RelayLocation, index_path, relay_numbers, relay_path
from replica.relay.lock import RelayLock
from replica.relay.recovery import recover, remove_file
from replica.relay.reserve import reserve
from replica.relay.state import NEVER, StreamState

if TYPE_CHECKING:
    from pathlib import Path

_BEGINNING = GtidPosition()

MAX_FILE_BYTES = 256 << 20  # purging frees whole files; recovery walks one of them in a second or less
_UNSEALED_FILES = 2  # what may wait for the disk at a time: more, and the writer waits too


class RelayWriter:
    """Use `open`. Methods are called by one thread; `head`, `position` and `committed` by any."""

    def __init__(self, directory: Path, lock: RelayLock, *, start: GtidPosition, max_file_bytes: int) -> None:
        self.directory = directory
        self.max_file_bytes = max_file_bytes
        self.primary_file = ""
        self._lock = lock
        recovered = recover(directory)
        self.recovered_cut_bytes = recovered.cut_bytes
        self.state = StreamState(start if recovered.position is None else recovered.position, framed=True)
        self.state.run(0, 0)  # load or compile the kernel now: seconds, in which a stream would have to wait
        self._next_file = recovered.next_file
        self._snapshot = recovered.snapshot or self._nothing_yet()
        self._head_file = HeadFile(directory)
        self._head_file.publish(self._snapshot)
        self._file = -1
        self._index = -1
        self._number = 0
        self._format, self._format_file = b"", ""
        self._data_start = 0
        self._reserved = 0
        self._directory_dirty = False
        self._broken = False
        self._sealer = ThreadPoolExecutor(1, "relay-sealer")
        self._sealing: deque[Future[None]] = deque()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        start: GtidPosition = _BEGINNING,
        max_file_bytes: int = MAX_FILE_BYTES,
        lock: RelayLock | None = None,
    ) -> Self:
        """Recover the directory and go on behind its last complete group; `start` counts only where there is none.

        Raises RelayError where another replica holds the lock. A lock that was passed in is given back by `close` too.
        """
        lock = lock or RelayLock(directory)
        try:
            return cls(directory, lock, start=start, max_file_bytes=max_file_bytes)
        except BaseException:
            lock.close()
            raise

    @property
    def head(self) -> RelayHead:
        """Where the last complete group ends."""
        return self._snapshot.head

    @property
    def position(self) -> GtidPosition:
        return self.head.position

    @property
    def committed(self) -> RelayLocation:
        return RelayLocation(self._snapshot.file, self._snapshot.offset)

    def begin_stream(self, *, semi_sync: bool) -> None:
        """A new connection: what the last one left half-received is dropped."""
        self._check()
        self.rollback()
        self.state.reset_stream(semi_sync=semi_sync)

    def begin_file(self, fde: bytes) -> None:
        """The primary's FORMAT_DESCRIPTION, after `primary_file` was set: the same file goes on or a new one begins."""
        self._check()
        state = self.state
        state[slots.CHECKSUM] = announced_checksum(memoryview(fde))
        log_pos = int.from_bytes(fde[13:17], "little")
        state[slots.POSITION] = max(state[slots.POSITION], log_pos)
        identity = file_identity(fde, self.primary_file)
        if self._file < 0 or identity != file_identity(self._format, self._format_file):
            self._open_file(fde)

    def append(self, span: memoryview, offset: int) -> None:
        """Write group bytes at a relay file offset (the kernel's OFFSET before it kept them)."""
        self._check()
        if self._file < 0:
            raise ProtocolError(
                "an event group came before any FORMAT_DESCRIPTION event",
                hint="The server does not speak the protocol of a MariaDB primary.",
            )
        try:
            if offset + len(span) > self._reserved:
                self._reserved = reserve(self._file, self._reserved)
            while len(span):
                written = os.pwrite(self._file, span, offset)
                span, offset = span[written:], offset + written
        except OSError as error:
            raise self._failed(error) from error

    def commit(self) -> None:
        """Publish the groups that the last kernel run completed; their bytes have been appended."""
        entries = self.state.take_index()
        if len(entries):
            self._write_index(entries)
        state = self.state
        self._snapshot = Snapshot(
            self._number,
            state[slots.COMMITTED_OFFSET],
            self.primary_file,
            state[slots.COMMITTED_POSITION],
            state[slots.COMMITTED_TIMESTAMP],
            state.domain_bytes(),
        )
        self._head_file.publish(self._snapshot)

    def roll(self) -> None:
        """Begin a new relay file inside the primary's file; no group is open."""
        self._check()
        self._open_file(self._format)

    def rollback(self) -> None:
        """Cut the open group's bytes off the file, as if they had never come."""
        if self._file < 0 or self._broken:
            return
        if os.fstat(self._file).st_size > self.state[slots.COMMITTED_OFFSET]:
            os.ftruncate(self._file, self.state[slots.COMMITTED_OFFSET])

    def sync(self) -> None:
        """Make everything that was committed survive a power cut."""
        self._check()
        self._wait_for_seals(0)
        try:
            if self._file >= 0:
                os.fdatasync(self._file)
            if self._directory_dirty:
                sync_directory(self.directory)
                self._directory_dirty = False
        except OSError as error:
            raise self._failed(error) from error

    def total_bytes(self) -> int:
        """Bytes in relay files, the open group's too."""
        total = 0
        for number in relay_numbers(self.directory):
            try:
                total += relay_path(self.directory, number).stat().st_size
            except FileNotFoundError:
                continue  # purged meanwhile
        return total

    def has_older_files(self) -> bool:
        """Whether there are files before the one that holds the last complete group: only those can be purged."""
        return any(number < self._snapshot.file for number in relay_numbers(self.directory))

    def restart(self, position: GtidPosition) -> None:
        """Forget the log and begin again at `position`: for a position that this log does not lead to."""
        self._check()
        self._close_file()
        self._wait_for_seals(0)
        for number in relay_numbers(self.directory):
            remove_file(self.directory, number)
        sync_directory(self.directory)
        self.state = StreamState(position, framed=True)
        self._snapshot = self._nothing_yet()
        self._head_file.publish(self._snapshot)

    def close(self) -> None:
        """Drop the open group, seal the file, give the lock back. May be called twice."""
        try:
            if not self._broken:
                self.rollback()
                self._close_file()
            self._sealer.shutdown()
            self._wait_for_seals(0)
        finally:
            self._broken = True
            self._head_file.close()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _nothing_yet(self) -> Snapshot:
        return Snapshot(self._next_file, 0, "", 0, 0, self.state.domain_bytes())

    def _open_file(self, fde: bytes) -> None:
        state = self.state
        head = encode_file_head(fde, BinlogPosition(self.primary_file, state[slots.POSITION]), state.position())
        self._close_file()
        number, self._next_file = self._next_file, self._next_file + 1
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._index = os.open(index_path(self.directory, number), flags | os.O_APPEND, 0o644)
            os.write(self._index, encode_header())
            self._file = os.open(relay_path(self.directory, number), flags, 0o644)
            os.write(self._file, head)
        except OSError as error:
            raise self._failed(error) from error
        self._number, self._format, self._format_file = number, fde, self.primary_file
        self._directory_dirty = True
        self._data_start = self._reserved = len(head)
        for slot in (slots.OFFSET, slots.COMMITTED_OFFSET, slots.LAST_ENTRY):
            state[slot] = len(head)
        state[slots.COMMITTED_POSITION] = state[slots.POSITION]
        state[slots.UNORDERED] = state[slots.XA] = 0
        state[slots.ROLL_AT] = self.max_file_bytes

    def _close_file(self) -> None:
        """Seal the current file; one without a group is removed instead."""
        if self._file < 0:
            return
        state, file, index = self.state, self._file, self._index
        self._file = self._index = -1
        state[slots.ROLL_AT] = NEVER
        if state[slots.COMMITTED_OFFSET] == self._data_start:
            os.close(file)
            os.close(index)
            remove_file(self.directory, self._number)
            self._next_file = self._number  # nobody has seen it: the numbers of files with groups have no gaps
            return
        entry = IndexEntry(
            state[slots.COMMITTED_OFFSET],
            state[slots.COMMITTED_POSITION],
            state[slots.COMMITTED_TIMESTAMP],
            SEALED_FLAG | UNORDERED_FLAG * state[slots.UNORDERED] | XA_FLAG * state[slots.XA],
            state[slots.LAST_DOMAIN],
            state.domain_bytes(),
        )
        try:
            os.ftruncate(file, state[slots.COMMITTED_OFFSET])  # also gives back what was reserved behind it
        except OSError as error:
            raise self._failed(error) from error
        self._wait_for_seals(_UNSEALED_FILES - 1)
        self._sealing.append(self._sealer.submit(_seal, file, index, encode_entry(entry)))

    def _wait_for_seals(self, allowed: int) -> None:
        while len(self._sealing) > allowed or (self._sealing and self._sealing[0].done()):
            try:
                self._sealing.popleft().result()
            except OSError as error:
                raise self._failed(error) from error

    def _write_index(self, entries: memoryview) -> None:
        try:
            if os.write(self._index, entries) != len(entries):
                raise self._failed(OSError("a short write into the index"))
        except OSError as error:
            raise self._failed(error) from error

    def _check(self) -> None:
        if self._broken:
            raise RelayError(
                f"The relay log {self.directory} was closed, or an error made it unusable.",
                hint="Open it again: that recovers everything up to the last complete group.",
            )

    def _failed(self, error: OSError) -> RelayError:
        self._broken = True
        return RelayError(
            f"Writing the relay log {self.directory} failed: {error.strerror or error}.",
            hint="Free space there or mend the disk, then start again: nothing that was acknowledged is lost.",
        )


def _seal(file: int, index: int, entry: bytes) -> None:
    """Runs in the sealer's thread; owns both descriptors."""
    try:
        os.fdatasync(file)
        os.write(index, entry)
        os.fdatasync(index)
    finally:
        os.close(file)
        os.close(index)
