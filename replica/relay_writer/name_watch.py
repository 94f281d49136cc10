"""Check that the writer's open files, and the lock, still have their names (relay_log/directory/presence.py).

Bytes in a file without a name are lost, and a file with that name may belong to another process. `NameWatch` raises
RelayError in that case, and the log becomes unusable.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from replica.errors import RelayError
from replica.relay_log.directory.presence import ensure_named, removed
from replica.relay_log.location import relay_path

if TYPE_CHECKING:
    from replica.relay_log.directory.head import Snapshot
    from replica.relay_log.directory.presence import NamedFile
    from replica.relay_writer.chain import FileChain
    from replica.relay_writer.failure import LogFailure


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

        Called for each ACK after the sync; one system call, 2 to 4 us.
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

    def ensure_whole(self, head_file: NamedFile, end: Snapshot) -> None:
        """Check the index and the head file too. Called at intervals, also on a full disk."""
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
