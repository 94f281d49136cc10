"""The relay files of one writer in their order: the one being written, those waiting to be sealed, the sealed ones.

In: heads and sealing entries. Out: files that follow each other without a gap in their numbers; names reach the disk in
that order too. Raises OSError as the system does: the writer knows what it means.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from replica.relay_log.directory.disk import sync_directory
from replica.relay_log.files.index import encode_entry, last_entry
from replica.relay_log.files.removal import remove_files
from replica.relay_log.files.sealed_files import SealedFiles
from replica.relay_log.location import index_path, relay_numbers
from replica.relay_writer.open_file import OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from replica.relay_log.files.index import IndexEntry


class FileChain:
    """The chain of files. `next_number` is the number the next new file gets; `current` is None before the first
    one.
    """

    def __init__(self, directory: Path, next_number: int) -> None:
        self._directory = directory
        self.next_number = next_number
        self.current: OpenFile | None = None
        self.sealed = SealedFiles(directory)
        self._sealer = Sealer()
        self._unsynced_names = False
        self._plain = True  # all files before the current one (see index.py)

    def begin(self, head: bytes) -> OpenFile:
        """Open the next file; the one before was ended."""
        self._sync_names()  # a power cut must not keep this file's name and lose that of the one before
        self._unsynced_names = True
        self.current = OpenFile(self._directory, self.next_number, head)
        self.next_number += 1
        if not self.sealed.total()[0]:
            self.sync()  # the first head alone tells where the log begins: it is durable before a group is published
        return self.current

    def end(self, entry: IndexEntry) -> None:
        """Seal the current file, in the background, behind `entry`; one without a group is removed instead."""
        file = self.current
        if file is None:
            return
        if entry.end == file.data_start:
            self._close_current()
            remove_files(self._directory, [file.number])
            self.next_number = file.number  # no one has seen it: the numbers of files with groups have no gaps
            return
        file.cut(entry.end)
        entry = entry.judged(plain=file.plain, before=self._plain)
        self._plain = entry.plain_log
        self.current = None
        self.sealed.add(file.number, entry.end)
        self._sealer.submit(file.seal(encode_entry(entry)))

    def sync(self) -> None:
        """Make everything that was written and ended survive a power cut."""
        self._sealer.finish()
        if self.current is not None:
            self.current.sync()
        self._sync_names()

    def finish(self) -> None:
        """Wait until every file that was ended is sealed."""
        self._sealer.finish()

    def remove_all(self) -> None:
        self.drop()
        remove_files(self._directory, relay_numbers(self._directory))
        self.sealed = SealedFiles(self._directory)
        self._plain = True

    def recovered(self, next_number: int) -> None:
        """Note that the directory was put into order: no file is open, and all are sealed."""
        self.next_number = next_number
        self.sealed = SealedFiles(self._directory)
        self.sealed.extend(next_number - 1)
        last = last_entry(index_path(self._directory, next_number - 1))
        self._plain = last.plain_log if last else not self.sealed.total()[0]

    def drop(self) -> None:
        """Give back every descriptor, whatever state the files are in."""
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


# Seal complete relay files in one background thread, in their order, and keeps what went wrong until it is asked.
#
# A sealed file says that those before it are on disk as well: after one that failed, none is sealed any more.

MAX_WAITING = 2  # files that may wait for the disk at a time: more, and the writer waits too


class Sealer:
    """The background thread. Methods are called by the writer's thread. `submit` and `finish` raise the OSError that a
    seal ended with.
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
        """Wait too, but for the sake of the descriptors: recovery looks at what the seals left."""
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
