"""Relay files of one writer in order: the current file, the files that wait to be sealed, and the sealed files.

`FileChain` creates files with consecutive numbers, and their names reach the disk in that order. OSErrors are passed on
to the writer.
"""

from __future__ import annotations

import contextlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from replica.errors import RelayError
from replica.relay_log.directory.disk import sync_directory
from replica.relay_log.directory.lock import ensure_named, removed
from replica.relay_log.files.index import encode_entry, last_entry
from replica.relay_log.files.lookup import SealedFiles, remove_files
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_writer.open_file import OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.relay_log.directory.head import Snapshot
    from replica.relay_log.directory.lock import NamedFile
    from replica.relay_log.files.index import IndexEntry
    from replica.relay_writer.open_file import LogFailure


class FileChain:
    """Chain of relay files.

    `next_number` is the number of the next new file; `current` is None before the first file.
    """

    def __init__(self, directory: Path, next_number: int) -> None:
        self._directory = directory
        self.next_number = next_number
        self.current: OpenFile | None = None
        self.sealed = SealedFiles(directory)
        self._sealer = Sealer()
        self._unsynced_names = False
        self._plain = True  # whether all files before the current one are plain (see index.py)

    def begin(self, head: bytes) -> OpenFile:
        """Open the next file; the previous one must have been ended."""
        self._sync_names()  # a power cut must not keep this file's name and lose the previous one
        self._unsynced_names = True
        self.current = OpenFile(self._directory, self.next_number, head)
        self.next_number += 1
        if not self.sealed.total()[0]:
            self.sync()  # only the first head records the log's start, so it is durable before a group is published
        return self.current

    def end(self, entry: IndexEntry) -> None:
        """Seal the current file in the background with `entry`; a file without a group is removed instead."""
        file = self.current
        if file is None:
            return
        if entry.end == file.data_start:
            self._close_current()
            remove_files(self._directory, [file.number])
            self.next_number = file.number  # no reader has seen the file, and files with groups have no gaps
            return
        file.cut(entry.end)
        entry = entry.judged(plain=file.plain, before=self._plain)
        self._plain = entry.plain_log
        self.current = None
        self.sealed.add(file.number, entry.end)
        self._sealer.submit(file.seal(encode_entry(entry)))

    def sync(self) -> None:
        """Make everything that was written or ended durable."""
        self._sealer.finish()
        if self.current is not None:
            self.current.sync()
        self._sync_names()

    def finish(self) -> None:
        """Wait until every ended file is sealed."""
        self._sealer.finish()

    def remove_all(self) -> None:
        self.drop()
        remove_files(self._directory, relay_numbers(self._directory))
        self.sealed = SealedFiles(self._directory)
        self._plain = True

    def recovered(self, next_number: int) -> None:
        """Reset after a recovery, in which all files are sealed and none is open."""
        self.next_number = next_number
        self.sealed = SealedFiles(self._directory)
        self.sealed.extend(next_number - 1)
        last = last_entry(index_path(self._directory, next_number - 1))
        self._plain = last.plain_log if last else not self.sealed.total()[0]

    def drop(self) -> None:
        """Close every descriptor, whatever the state of the files."""
        self._sealer.abandon()
        self._close_current()

    def close(self) -> None:
        self.drop()
        self._sealer.close()

    def _close_current(self) -> None:
        if self.current is not None:
            file, self.current = self.current, None
            file.close()

    def _sync_names(self) -> None:
        if self._unsynced_names:
            sync_directory(self._directory)
            self._unsynced_names = False


# A sealed file implies that all earlier files are on disk. After a failed seal, no later file is sealed, and the next
# call of `Sealer` raises the error.

MAX_WAITING = 2  # files that may wait for the disk before the writer waits too


class Sealer:
    """Background thread that seals files. The writer's thread calls the methods.

    `submit` and `finish` raise the OSError of a failed seal.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "relay-sealer")
        self._waiting: deque[Future[None]] = deque()
        self._failed = False

    def submit(self, seal: Callable[[bool], None]) -> None:
        self._waiting.append(self._threads.submit(self._run, seal))
        self._wait(MAX_WAITING)

    def finish(self) -> None:
        """Wait until every file is sealed."""
        self._wait(0)

    def abandon(self) -> None:
        """Wait until all descriptors are closed and ignore errors; recovery checks the files."""
        while self._waiting:
            self._waiting.popleft().exception()
        self._failed = False

    def close(self) -> None:
        self.abandon()
        self._threads.shutdown()

    def _run(self, seal: Callable[[bool], None]) -> None:
        wanted, self._failed = not self._failed, True
        seal(wanted)
        self._failed = not wanted

    def _wait(self, allowed: int) -> None:
        while len(self._waiting) > allowed or (self._waiting and self._waiting[0].done()):
            self._waiting.popleft().result()


# If a file loses its name (removed or renamed), its bytes are lost, and a file of that name may belong to another
# process. `NameWatch` detects this and makes the log unusable.


class NameWatch:
    """Name checks of one writer's files; every failed check makes the log unusable."""

    def __init__(self, lock: NamedFile, files: FileChain, failure: LogFailure) -> None:
        self._lock = lock
        self._files = files
        self._failure = failure

    @property
    def ours(self) -> bool:
        """Whether the directory still has our lock file. Otherwise its files belong to another replica."""
        return self._lock.has_its_name()

    def ensure_named(self) -> None:
        """Raise RelayError if the current file has lost its name; every later operation then raises too.

        The writer calls this method before each ACK, after the sync. It takes one system call, 2 to 4 us.
        """
        current = self._files.current
        watched = current.file if current else self._lock
        try:
            if self._failure.error is None and watched.has_its_name():
                return
        except OSError as error:
            self._failure.fail(error)
        self._failure.check()
        self._failure.error = removed(self._failure.directory, watched.path)
        raise self._failure.error

    def ensure_ours(self) -> None:
        """Check the current file's name, and that the lock still excludes others, before any change by file name."""
        self.ensure_named()
        self.ensure_locked()

    def ensure_locked(self) -> None:
        """Check that the lock still excludes others."""
        with self._failure.kept():
            ensure_named(self._failure.directory, self._lock)

    def check_files(self, head_file: NamedFile, end: Snapshot) -> None:
        """Check the names of all files, also of index and head. Called at intervals, also on a full disk."""
        current, directory = self._files.current, self._failure.directory
        with self._failure.kept():
            ensure_named(directory, self._lock, head_file)
            ensure_named(directory, *((current.file, current.index) if current else ()))
            last = relay_path(directory, end.file)  # retention never removes this file
            if end.offset and not last.exists():
                raise removed(directory, str(last))

    def keeps_its_names(self) -> bool:
        """Return True if the log may still be written by name; otherwise every later operation raises."""
        with contextlib.suppress(RelayError):
            self.ensure_ours()
            return True
        return False
