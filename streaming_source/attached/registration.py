"""Registration of a query with a daemon: its name, and the part of the relay log that it still needs.

`QueryRegistration` registers the places that the query has finished with, and the daemon's retention respects them. The
registration stays when the query stops, so that its files exist when the query resumes. A thread renews it, because
Spark calls no method of the source during a long batch. If the daemon has removed files that the query needed, the
query cannot continue and ends with an error.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Final

from replica.errors import DataLossError, RelayError, ReplicaError
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.readers import (
    READERS_NAME,
    ReaderRegistration,
    make_readers_directory,
    registered_readers,
)
from replica.relay_log.log import RelayLog

if TYPE_CHECKING:
    from pathlib import Path

    from replica.relay_log.location import RelayLocation
    from streaming_source.options.source_options import SourceOptions
# `take_name` returns the name, and a lock on a file beside the registrations holds it while the query runs. The name
# is the option readerName, or one made from the tables with a number. A restarted query finds its registration by this
# name, because Spark gives a source neither the query's name nor its checkpoint. A readerName that another running
# query has is an error.


MAX_QUERIES: Final = 64
"""Most queries of the same tables on one relay log without a readerName. More queries are a sign of a loop that never
stops its queries.
"""
PATIENCE_S: Final = 5.0
"""Seconds to wait for a name. A stopped query ends within two seconds, and its next start has to find the name free."""
POLL_S: Final = 0.1
TABLES_SHOWN: Final = 40
"""Most letters of table names in a made name. The name is a file name, and people read it in lists."""


class ReaderName:
    """Name that this query holds until `close`, or until the process ends."""

    def __init__(self, text: str, path: Path, descriptor: int) -> None:
        self.text = text
        self._path = path
        self._descriptor: int | None = descriptor

    @property
    def is_owned(self) -> bool:
        """Whether this query still holds the name.

        If the folder was created again, the lock is on a file without a name.
        """
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return self._descriptor is not None and os.path.samestat(found, os.fstat(self._descriptor))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def take_name(directory: Path, options: SourceOptions) -> ReaderName:
    """Take and return the name of this query.

    Raises:
        RelayError: another running query has it, or the folder of the registrations cannot be written.
    """
    if options.reader_name is not None:
        taken = _wait_for(directory, options.reader_name)
        if taken is None:
            raise RelayError(
                f"another query reads {directory} as readerName={options.reader_name}.",
                hint="Give each query its own readerName. The daemon keeps files for each name.",
            )
        return taken
    made = made_name(options)
    if (taken := _wait_for(directory, f"{made}-1")) is not None:
        return taken
    for number in range(2, MAX_QUERIES + 1):
        if (taken := _try(directory, f"{made}-{number}")) is not None:
            return taken
    raise RelayError(
        f"{MAX_QUERIES} queries of these tables are reading {directory}.", hint="Stop some, or give each a readerName."
    )


def made_name(options: SourceOptions) -> str:
    """Make a name like spark-shop.orders-1f3a9c02.

    The name has the tables, for people, and a hash of the tables and the row shape.
    """
    tables = ",".join(options.patterns)
    key = f"{tables}|{options.row_shape}"
    shown = re.sub(r"[^A-Za-z0-9_.-]+", "_", tables)[:TABLES_SHOWN].strip("_.") or "tables"
    return f"spark-{shown}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _wait_for(directory: Path, name: str) -> ReaderName | None:
    deadline = time.monotonic() + PATIENCE_S
    while (taken := _try(directory, name)) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return taken


def _try(directory: Path, name: str) -> ReaderName | None:
    path = directory / READERS_NAME / f"{name}.lock"
    try:
        make_readers_directory(directory)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RelayError(
            f"the query cannot register with the daemon: {path} cannot be written ({error.strerror or error}).",
            hint="Add the account of the query to the daemon's group, which may write there, and mount the folder "
            "writable. If this readerName belongs to another account, set another one.",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return ReaderName(name, path, descriptor)


TOUCH_EVERY_S: Final = 10.0
CLAIM_S: Final = 5.0
"""Seconds to repeat a claim, because retention may be removing the oldest file at that moment."""
CLAIM_POLL_S: Final = 0.05
WRITE_EVERY_S: Final = 1.0
"""Seconds between two writes of the registration within one file. Retention works in whole files, so these writes only
inform people.
"""
_log = logging.getLogger(__name__)


class QueryRegistration:
    """Registration of one query. It has no effect before `claim`. Only one thread calls it."""

    def __init__(self, directory: Path, options: SourceOptions) -> None:
        self._directory = directory
        self._options = options
        self._name: ReaderName | None = None
        self._registration: ReaderRegistration | None = None
        self.lost: DataLossError | None = None
        """Error if files were removed for which this query was registered; None if none were."""
        self._kept: RelayLocation | None = None
        self._written_s = 0.0
        self._alive: threading.Thread | None = None
        self._stop = threading.Event()

    def claim(self) -> None:
        """Take the name. A known name keeps its registered place; a new name keeps everything in the log.

        Raises:
            RelayError: another running query has the name, or the folder cannot be written.
        """
        if self._name is not None and self._name.is_owned:
            return
        self._name = take_name(self._directory, self._options)
        self._registration = ReaderRegistration(self._directory, self._name.text)
        try:
            self._registration.check()
        except DataLossError as error:
            self.lost = error  # matters only if the query needs the removed files
        if all(reader.name != self._name.text for reader in registered_readers(self._directory)):
            self._keep_everything(self._registration)
        if self._alive is None:
            self._alive = threading.Thread(target=self._stay_alive, daemon=True)
            self._alive.start()

    @property
    def name(self) -> str:
        """Name of the query, or '' before `claim`."""
        return "" if self._name is None else self._name.text

    def _keep_everything(self, registration: ReaderRegistration) -> None:
        log = RelayLog(self._directory)
        deadline = time.monotonic() + CLAIM_S
        self._kept = None
        while self._kept is None:
            oldest = log.oldest()
            try:
                registration.keep_from(oldest, str(log.first_position() or GtidPosition()))
            except DataLossError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(CLAIM_POLL_S)
            else:
                self._kept = oldest

    def _stay_alive(self) -> None:
        while not self._stop.wait(TOUCH_EVERY_S):
            try:
                if self._registration is not None:
                    self._registration.touch()
            except ReplicaError as error:  # the planning thread meets the same error, and ends the query with it
                _log.warning("%s", error)

    def is_news(self, location: RelayLocation) -> bool:
        """Return True if the place is new, and in another file or due for a write (WRITE_EVERY_S)."""
        kept, due = self._kept, time.monotonic() - self._written_s >= WRITE_EVERY_S
        return location != kept and (due or kept is None or location.file != kept.file)

    def keep_from(self, location: RelayLocation, position: GtidPosition) -> None:
        """Release whole files before the place."""
        if self._registration is not None:
            self._registration.keep_from(location, str(position))
            self._kept, self._written_s = location, time.monotonic()

    @property
    def was_dropped(self) -> bool:
        """Whether the daemon has removed files that this query still needed."""
        try:
            self.check()
        except DataLossError as error:
            self.lost = error
            return True
        return False

    def check(self) -> None:
        """Raise DataLossError if the daemon has removed files that this query still needed."""
        if self._registration is not None:
            self._registration.check()

    def leave(self) -> None:
        """End the registration, so that the daemon keeps nothing for this query any more."""
        self._stop.set()
        if self._registration is not None:
            self._registration.close()
        self.close()

    def close(self) -> None:
        """Release the name. The registration stays, because the query may resume later."""
        self._stop.set()
        if self._name is not None:
            self._name.close()
