"""Watches whether the files that a writer holds open still have their names, and the lock with them.

In: the lock, the files of the log. Out: nothing, or a RelayError, which is kept: what is written from then on could not
be found again, and what lies there by these names may be another's (relay_log/presence.py).
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
    """Look at the names of one writer's files; every refusal makes the log unusable."""

    def __init__(self, lock: NamedFile, files: FileChain, failure: LogFailure) -> None:
        self._lock = lock
        self._files = files
        self._failure = failure

    @property
    def ours(self) -> bool:
        """Whether the directory is still the one that is locked: else what lies there is of another replica."""
        return self._lock.has_its_name()

    def ensure_named(self) -> None:
        """Raise RelayError where what is written now could not be found again; then all else raises too.

        For each ACK, after the sync: one system call, 2 to 4 us.
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
        """Make sure too that the lock still excludes others: before anything there is changed by its name."""
        self.ensure_named()
        self.ensure_locked()

    def ensure_locked(self) -> None:
        """Make sure of that alone."""
        with self._failure.kept():
            ensure_named(self._failure.directory, self._lock)

    def ensure_whole(self, head_file: NamedFile, end: Snapshot) -> None:
        """Make sure of the sidecar and of what readers are told by; for calls now and then, on a full disk too."""
        current, directory = self._files.current, self._failure.directory
        with self._failure.kept():
            ensure_named(directory, self._lock, head_file)
            ensure_named(directory, *((current.file, current.index) if current else ()))
            last = relay_path(directory, end.file)  # retention leaves it
            if end.offset and not last.exists():
                raise removed(directory, str(last))

    def keeps_its_names(self) -> bool:
        """Tell whether the log may still be written by name; where not, all else raises from now on."""
        with contextlib.suppress(RelayError):
            self.ensure_ours()
            return True
        return False
