"""The relay log's one writer: appends complete and half-received groups, and knows where the last complete one ends.

In: spans of group bytes that a kernel has checked and delimited, with the shared `StreamState`. Out: relay files in
MariaDB's binlog format, their sidecars, the published head. A new file begins when the primary's file does, at a group
end beyond `max_file_bytes`, and once its groups are `max_file_age_s` old. A file that is complete is sealed in the
background: its data reaches the disk before its sidecar says so. After an error while writing it refuses everything;
`reopen` recovers a log whose disk was full, opening the directory again any other. So it does once a file that it holds
open has lost its name (name_watch.py): then it also touches nothing by name any more, which may be someone else's.
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
from replica.relay_log.files.file_head import encode_file_head, file_identity
from replica.relay_log.files.state import NEVER, StreamState
from replica.relay_log.groups.order import Begun, LogOrder, read_order, write_order
from replica.relay_log.kernels.stream_record import Cell
from replica.relay_log.location import RelayHead, RelayLocation
from replica.relay_writer.chain import FileChain
from replica.relay_writer.failure import LogFailure
from replica.relay_writer.name_watch import NameWatch
from replica.relay_writer.recovery import recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.protocol.gtid import Highest
    from replica.relay_writer.open_file import OpenFile

    Start = GtidPosition | None | Callable[[], GtidPosition | None]

_BEGINNING = GtidPosition()

MAX_FILE_BYTES = 256 << 20  # purging frees whole files; recovery walks one of them in a second or less
MAX_FILE_AGE_S = 3600.0  # a file that is open cannot be purged
_REOPEN_BYTES = 2 << 20  # for a sidecar, and the head of a new file


class RelayWriter:
    """The writer. Use `open`. Methods are called by one thread; `head`, `position`, `committed` and the figures by any.

    Every method that writes raises DiskFullError where the disk or the quota is full, RelayError for other errors.
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
        self.state.run(0, 0)  # load or compile the kernel now: seconds, in which a stream would have to wait
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
        self._told = has_begun(directory)
        self._publish_end()
        make_readers_directory(directory)  # behind the head, without which it tells of a log that is gone

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
        """Recover the directory and go on behind its last complete group; `start` counts only where there is none.

        If `start` is a function, it is called only there, before anything of the directory is overwritten, and may
        refuse. None leaves open where the log begins: `restart` settles it. Raise RelayError where another replica
        holds the lock. A lock that was passed in is given back by `close` too.
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
        """The place where the last complete group ends."""
        return self._snapshot.head

    @property
    def position(self) -> GtidPosition:
        return self.head.position

    @property
    def begun(self) -> bool:
        """Whether it is settled where this log begins."""
        snapshot = self._snapshot
        return bool(snapshot.offset or snapshot.primary_position)

    @property
    def committed(self) -> RelayLocation:
        return RelayLocation(self._snapshot.file, self._snapshot.offset)

    @property
    def highest(self) -> Highest:
        """The numbers behind which those of a domain went back."""
        return self._order.highest

    def begin_stream(self, *, semi_sync: bool, strict: bool = False) -> None:
        """Begin a new connection: what the last one left half-received is dropped. `strict`: no number may go back."""
        self._failure.check()
        self.rollback()
        self.state.reset_stream(semi_sync=semi_sync, strict=strict)

    def change_server(self) -> int:
        """Note that what comes next is another server's; return the number of the relay file that it begins.

        Two servers may have a binlog file of one name, one server id and one beginning.
        """
        self._failure.check()
        self._other_server = True
        file = self._files.current
        has_groups = file is not None and self.state[Cell.committed_offset] > file.data_start
        return self._files.next_number if file is None or has_groups else file.number

    def begin_file(self, fde: bytes) -> None:
        """Begin with the primary's FORMAT_DESCRIPTION, after `primary_file` was set: the same file goes on or a new one
        begins.
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
        """Write group bytes at a relay file offset (the kernel's OFFSET before it kept them)."""
        try:
            self._current().append(span, offset)
        except OSError as error:
            self._failure.fail(error)

    def commit(self) -> None:
        """Publish the groups that the last kernel run completed; their bytes have been appended."""
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
        """Begin a new relay file inside the primary's file; no group is open."""
        self._failure.check()
        self._open_file(self._format)

    def roll_if_old(self, now_s: float | None = None) -> None:
        """Begin a new file if the current one has had groups for `max_file_age_s` and none is open.

        For calls every second or so, at any time. `now_s` is of the monotonic clock.
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
        """Cut the open group's bytes off the file, as if they had never come. Nothing, where the log is unusable."""
        if self._files.current is not None and self._failure.error is None:
            with self._failure.kept():
                self._files.current.cut_open_group(self.state[Cell.committed_offset])

    def sync(self) -> None:
        """Make everything that was committed survive a power cut."""
        self._failure.check()
        try:
            self._files.sync()
        except OSError as error:
            self._failure.fail(error)
        self.names.ensure_named()

    def ensure_whole(self) -> None:
        """Raise RelayError where a file that readers need has lost its name; for calls now and then."""
        self.names.ensure_whole(self._head_file.file, self._snapshot)

    def total_bytes(self) -> int:
        """Count the bytes in relay files, the open group's too."""
        return self._files.sealed.total()[1] + (self.state[Cell.offset] if self._files.current else 0)

    def file_count(self) -> int:
        return self._files.sealed.total()[0] + bool(self._files.current)

    def has_older_files(self) -> bool:
        """Tell whether there are files before the one that holds the last complete group: only those can be purged."""
        oldest = self._files.sealed.oldest()
        return oldest is not None and oldest[0] < self._snapshot.file

    def free_bytes(self) -> int:
        """Return what this process's user may still write on the log's disk."""
        try:
            return free_bytes(self.directory)
        except OSError as error:
            raise disk_error(self.directory, error) from error

    def reopen(self) -> None:
        """Recover the log in place after a DiskFullError: same lock, same object, nothing committed is lost.

        Raise DiskFullError while there is no room still, RelayError where the log was closed or is damaged. This takes
        as long as reading and writing what was not sealed (at most three files). The next stream begins at `position`.
        """
        if not isinstance(self._failure.error, DiskFullError):
            self._failure.check()
            return
        self.names.ensure_locked()  # or what has these names is of another replica
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
        """Forget the log and begin again at `position`: for a position that this log does not lead to.

        `place`: where that is on the primary, for a log whose sequence numbers may go back; `highest`: where they did.

        A log that gets no group remembers it all the same, also through a power cut.
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
        """Drop the open group, seal the file, give the lock back. May be called twice.

        A full disk is no error here: the next opening recovers what could not be sealed. Nor are files that have lost
        their names: it says what is left.
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
                f"The relay log {self.directory} was closed.", hint="Open it again: it goes on behind its last group."
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
        empty = recovered.snapshot is None  # it goes on behind the numbers it had: a place is never another one later
        self._files.recovered(max(recovered.next_file, self._files.next_number if empty else 0))
        with self._failure.kept():
            self._keep_order(recovered.order)
        position = recovered.position
        if position is None:
            position = start() if callable(start) else start
        self._begin_at(position)
        self._snapshot = recovered.snapshot or self._snapshot

    def _publish_end(self) -> None:
        """Publish the end after a recovery. The beginning of a log that got lost may be open still: then what was told
        of it stays.
        """
        if self.begun or not self._told:
            self._head_file.publish(self._snapshot)

    def _begin_at(self, position: GtidPosition | None) -> None:
        """Begin as with an empty log: no file is open, and the next group goes into a new one."""
        self.state = StreamState(position or _BEGINNING, framed=True, counted=self.state, highest=self._order.highest)
        snapshot = self.state.snapshot(self._files.next_number, "")
        self._snapshot = snapshot if position is None else snapshot._replace(primary_position=BEGUN)

    def _keep_order(self, order: LogOrder) -> None:
        if order != self._order:
            write_order(self.directory, order)
            self._order = order

    def _open_file(self, fde: bytes) -> None:
        state = self.state
        self.names.ensure_ours()  # the next file is made by its name, in what must still be our folder
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
                "an event group came before any FORMAT_DESCRIPTION event",
                hint="The server does not speak the protocol of a MariaDB primary.",
            )
        return self._files.current
