"""Writer of a relay log: appends complete and partly received groups, and tracks the end of the last complete one.

`RelayWriter` takes bytes that a kernel has checked and divided into groups, with the shared `StreamState`. It writes
relay files in MariaDB's binlog format, their index files and the published head. A new file begins with each file of
the primary, at a group end after `max_file_bytes`, and when its groups are `max_file_age_s` old. A complete file is
sealed in the background: its data is on disk before its index says so.

After a write error, the writer refuses every operation. `reopen` recovers a log after a full disk; after other errors
the directory must be opened again. A file that has lost its name (chain.py) is such an error. The writer then
touches no file by name, because the files may belong to another process.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Self

from replica.errors import DiskFullError, ProtocolError, RelayError
from replica.native.kernel_group import NO_GROUP
from replica.protocol.gtid import BinlogPosition, GtidPosition, merged
from replica.protocol.header import announced_checksum
from replica.relay_log.directory.disk import disk_error, free_bytes, sync_directory
from replica.relay_log.directory.head import BEGUN, HeadFile, has_begun, next_number
from replica.relay_log.directory.lock import RelayLock
from replica.relay_log.directory.readers import make_readers_directory
from replica.relay_log.files.lookup import encode_file_head, file_identity
from replica.relay_log.files.scan import NEVER, StreamState
from replica.relay_log.groups.order import Begun, LogOrder, read_order, write_order
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.location import RelayHead, RelayLocation
from replica.relay_writer.chain import FileChain, NameWatch
from replica.relay_writer.open_file import LogFailure
from replica.relay_writer.recovery import recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.protocol.gtid import Highest
    from replica.relay_writer.open_file import OpenFile

    Start = GtidPosition | None | Callable[[], GtidPosition | None]

_BEGINNING = GtidPosition()

MAX_FILE_BYTES = 256 << 20  # a purge removes whole files, and recovery scans one in a second or less
MAX_FILE_AGE_S = 3600.0  # an open file cannot be purged
_REOPEN_BYTES = 2 << 20  # space for an index file and the head of a new file


class RelayWriter:
    """Writer of a relay log, created by `open`.

    One thread calls the methods; any thread may read `head`, `position`, `committed` and the figures. Every method that
    writes raises DiskFullError if the disk or the quota is full, and RelayError for other errors.
    """

    def __init__(
        self,
        directory: Path,
        lock: RelayLock,
        *,
        start: Start,
        max_file_bytes: int,
        max_file_age_s: float,
    ) -> None:
        self.directory = directory
        self.max_file_bytes = max_file_bytes
        self.max_file_age_s = max_file_age_s
        self.primary_file = ""
        self.state = StreamState(_BEGINNING, framed=True)
        self.state.run(0, 0)  # load or compile the kernel now, because a stream would wait seconds for it
        self._lock = lock
        self._failure = LogFailure(directory)
        self._format, self._format_file = b"", ""
        self._other_server = False
        self._aged_since_s: float | None = None
        self._order = read_order(directory)
        self._files = FileChain(directory, next_number(directory))
        self.names = NameWatch(lock.file, self._files, self._failure)
        self._recover(start)
        self._head_file = HeadFile(directory)
        self._had_begun = has_begun(directory)
        self._publish_end()
        make_readers_directory(directory)  # after the head: without a head, the folder means that the log was deleted

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        start: Start = None,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_file_age_s: float = MAX_FILE_AGE_S,
        lock: RelayLock | None = None,
    ) -> Self:
        """Recover the directory and continue after its last complete group; `start` counts only if there is none.

        Args:
            directory: Relay directory.
            start: Start position, or a function that returns it. The function is called only if no group exists, before
                anything is overwritten, and may raise an error. None leaves the start open until `restart`.
            max_file_bytes: Size after which a new file begins.
            max_file_age_s: Age in seconds after which a new file begins.
            lock: Lock of the directory, which `close` releases; None to acquire it.

        Raises:
            RelayError: Another replica holds the lock.
        """
        try:
            lock = lock or RelayLock(directory)
            try:
                return cls(directory, lock, start=start, max_file_bytes=max_file_bytes, max_file_age_s=max_file_age_s)
            except BaseException:
                lock.close()
                raise
        except OSError as error:
            raise disk_error(directory, error) from error

    @property
    def head(self) -> RelayHead:
        """End of the last complete group."""
        return self._snapshot.head

    @property
    def position(self) -> GtidPosition:
        return self.head.position

    @property
    def begun(self) -> bool:
        """Whether the start of this log is settled."""
        snapshot = self._snapshot
        return bool(snapshot.offset or snapshot.primary_position)

    @property
    def committed(self) -> RelayLocation:
        return RelayLocation(self._snapshot.file, self._snapshot.offset)

    @property
    def highest(self) -> Highest:
        """Highest number of each domain before its sequence numbers went back, for domains in which they did."""
        return self._order.highest

    def begin_stream(self, *, semi_sync: bool, strict: bool = False) -> None:
        """Start a new connection, and drop the partly received group of the last one.

        With `strict`, sequence numbers must not go back.
        """
        self._failure.check()
        self.rollback()
        self.state.reset_stream(semi_sync=semi_sync, strict=strict)

    def change_server(self) -> int:
        """Record that the next stream comes from another server; return the number of the relay file that it begins.

        Two servers may have a binlog file with the same name, server id and head.
        """
        self._failure.check()
        self._other_server = True
        file = self._files.current
        has_groups = file is not None and self.state[Cell.committed_offset] > file.data_start
        return self._files.next_number if file is None or has_groups else file.number

    def begin_file(self, fde: bytes) -> None:
        """Handle the primary's FORMAT_DESCRIPTION: continue the same relay file or begin a new one.

        The caller must have set `primary_file`.
        """
        self._failure.check()
        state = self.state
        state[Cell.checksum] = announced_checksum(memoryview(fde))
        log_pos = int.from_bytes(fde[13:17], "little")
        state[Cell.position] = max(state[Cell.position], log_pos)
        identity = file_identity(fde, self.primary_file)
        goes_on = identity == file_identity(self._format, self._format_file) and not self._other_server
        if self._files.current is None or not goes_on:
            self._open_file(fde)

    def append(self, span: memoryview, offset: int) -> None:
        """Write group bytes at `offset` of the relay file, the value of `Cell.offset` before the kernel kept them."""
        try:
            self._current().append(span, offset)
        except OSError as error:
            self._failure.fail(error)

    def commit(self) -> None:
        """Publish the groups that the last kernel run completed; their bytes must be appended."""
        file = self._current()
        entries = self.state.take_index()
        snapshot = self.state.snapshot(file.number, self.primary_file)
        try:
            if self.state[Cell.highest_grew]:
                self._keep_order(self._order._replace(highest=merged(self._order.highest, self.state.highest())))
                self.state[Cell.highest_grew] = 0
            if len(entries):
                file.add_entries(entries)
            self._head_file.publish(snapshot)
        except OSError as error:
            self._failure.fail(error)
        self._snapshot = snapshot

    def roll(self) -> None:
        """Begin a new relay file within the primary's file; no group may be open."""
        self._failure.check()
        self._open_file(self._format)

    def roll_if_old(self, now_s: float | None = None) -> None:
        """Begin a new file if the current one has had groups for `max_file_age_s` and no group is open.

        Call it every second or so, at any time. `now_s` is a time of the monotonic clock.
        """
        self._failure.check()
        state, file = self.state, self._files.current
        if file is None or self._other_server or state[Cell.committed_offset] == file.data_start:
            return
        now_s = time.monotonic() if now_s is None else now_s
        if self._aged_since_s is None:
            self._aged_since_s = now_s
        idle = state[Cell.group] == NO_GROUP and state[Cell.offset] == state[Cell.committed_offset]
        if idle and now_s - self._aged_since_s >= self.max_file_age_s:
            self._open_file(self._format)

    def rollback(self) -> None:
        """Cut the open group off the file, as if its bytes had never arrived; do nothing if the log is unusable."""
        if self._files.current is not None and self._failure.error is None:
            with self._failure.kept():
                self._files.current.cut_open_group(self.state[Cell.committed_offset])

    def sync(self) -> None:
        """Make all committed groups durable."""
        self._failure.check()
        try:
            self._files.sync()
        except OSError as error:
            self._failure.fail(error)
        self.names.ensure_named()

    def check_files(self) -> None:
        """Raise RelayError if a file that readers need has lost its name. Call it at intervals."""
        self.names.check_files(self._head_file.file, self._snapshot)

    def total_bytes(self) -> int:
        """Return the bytes of all relay files, including the open group."""
        return self._files.sealed.total()[1] + (self.state[Cell.offset] if self._files.current else 0)

    def file_count(self) -> int:
        return self._files.sealed.total()[0] + bool(self._files.current)

    def has_older_files(self) -> bool:
        """Return True if there are files before the one with the last complete group; only such files can be purged."""
        oldest = self._files.sealed.oldest()
        return oldest is not None and oldest[0] < self._snapshot.file

    def free_bytes(self) -> int:
        """Return the bytes that this process's user may still write on the log's disk."""
        try:
            return free_bytes(self.directory)
        except OSError as error:
            raise disk_error(self.directory, error) from error

    def reopen(self) -> None:
        """Recover the log in place after a DiskFullError, with the same lock and without losing committed groups.

        `reopen` reads and writes the files that were not sealed, at most three. The next stream begins at `position`.

        Raises:
            DiskFullError: The disk still has no room.
            RelayError: The log is closed or damaged.
        """
        if not isinstance(self._failure.error, DiskFullError):
            self._failure.check()
            return
        self.names.ensure_locked()  # without the lock, the files may belong to another replica
        if self.free_bytes() < _REOPEN_BYTES:
            self._failure.fail(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        with self._failure.kept():
            self._files.drop()
            self._recover(self.position if self.begun else None)
            self._publish_end()
        self._failure.error = None

    def restart(
        self, position: GtidPosition, *, highest: Highest | None = None, place: BinlogPosition | None = None
    ) -> None:
        """Delete the log and start again at `position`, for a position that this log does not reach.

        The new start is durable even before the first group.

        Args:
            position: GTID position of the start.
            highest: For each domain whose numbers went back, the highest number before that.
            place: Place of the position on the primary, for a log whose sequence numbers may go back.
        """
        self.names.ensure_ours()
        with self._failure.kept():
            self._files.remove_all()
            begun = None if place is None else Begun(self._files.next_number, place)
            self._keep_order(LogOrder(highest or {}, begun))
            self._begin_at(position)
            self._head_file.publish(self._snapshot)
            self._head_file.sync()
            sync_directory(self.directory)

    def close(self) -> None:
        """Drop the open group, seal the file and release the lock; a second call has no effect.

        A full disk is no error, because the next `open` recovers the unsealed file. Files that have lost their names
        are no error either, because the next `open` reports them.
        """
        try:
            if self._failure.error is None and self.names.keeps_its_names():
                self.rollback()
                with self._failure.kept():
                    self._files.end(self.state.sealed_entry())
                    self._files.finish()
        except DiskFullError:
            pass
        finally:
            self._files.close()
            self._failure.error = RelayError(
                f"The relay log {self.directory} was closed.", hint="Open it again: it continues after its last group."
            )
            self._head_file.close()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recover(self, start: Start) -> None:
        recovered = recover(self.directory)
        self.recovered_cut_bytes = recovered.cut_bytes
        empty = recovered.snapshot is None  # file numbers continue, so that a location never gets a second meaning
        self._files.recovered(max(recovered.next_file, self._files.next_number if empty else 0))
        with self._failure.kept():
            self._keep_order(recovered.order)
        position = recovered.position
        if position is None:
            position = start() if callable(start) else start
        self._begin_at(position)
        self._snapshot = recovered.snapshot or self._snapshot

    def _publish_end(self) -> None:
        """Publish the end after a recovery. If the start of a lost log is still open, the earlier record stays."""
        if self.begun or not self._had_begun:
            self._head_file.publish(self._snapshot)

    def _begin_at(self, position: GtidPosition | None) -> None:
        """Start as with an empty log: no file is open, and the next group begins a new one."""
        self.state = StreamState(position or _BEGINNING, framed=True, counted=self.state, highest=self._order.highest)
        snapshot = self.state.snapshot(self._files.next_number, "")
        self._snapshot = snapshot if position is None else snapshot._replace(primary_position=BEGUN)

    def _keep_order(self, order: LogOrder) -> None:
        if order != self._order:
            write_order(self.directory, order)
            self._order = order

    def _open_file(self, fde: bytes) -> None:
        state = self.state
        self.names.ensure_ours()  # the next file is created by name, so the folder must still be ours
        head = encode_file_head(fde, BinlogPosition(self.primary_file, state[Cell.position]), state.position())
        with self._failure.kept():
            state[Cell.roll_at] = NEVER
            self._files.end(state.sealed_entry())
            self._files.begin(head)
        self._format, self._format_file, self._other_server = fde, self.primary_file, False
        self._aged_since_s = None
        for slot in (Cell.offset, Cell.committed_offset, Cell.last_entry):
            state[slot] = len(head)
        state[Cell.committed_position] = state[Cell.position]
        state[Cell.unordered] = state[Cell.xa] = 0
        state[Cell.roll_at] = self.max_file_bytes

    def _current(self) -> OpenFile:
        self._failure.check()
        if self._files.current is None:
            raise ProtocolError(
                "an event group arrived before any FORMAT_DESCRIPTION event",
                hint="The server does not speak the protocol of a MariaDB primary.",
            )
        return self._files.current
